package handler

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

//go:embed page.html
var pageHTML string

// page is GET /: one document without external assets, allowed to run its own script and style only.
type page struct {
	csp string
}

func newPage() page {
	return page{"default-src 'none'; connect-src 'self'; script-src '" + hashOf("script") + "'; style-src '" + hashOf("style") +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
}

// hashOf is the CSP source of the page's only element of that name.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(pageHTML, "<"+element+">")
	body, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(body))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (p page) serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Security-Policy", p.csp)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Write([]byte(pageHTML))
}
