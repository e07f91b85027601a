package cmd

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// kafkaTLS is the TLS side of the connections to Kafka, nil for plain text.
func (c *Config) kafkaTLS() (*tls.Config, error) {
	if !c.KafkaTLS {
		return nil, nil
	}
	return tlsConfig(c.KafkaTLSCAFile, c.KafkaTLSCertFile, c.KafkaTLSKeyFile)
}

// tlsConfig reads what the files hold; "" leaves the system's authorities, and no client certificate.
func tlsConfig(caFile, certFile, keyFile string) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pool, err := readCA(caFile)
		if err != nil {
			return nil, err
		}
		t.RootCAs = pool
	}
	if certFile != "" {
		cert, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, err
		}
		t.Certificates = []tls.Certificate{cert}
	}
	return t, nil
}

func readCA(file string) (*x509.CertPool, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s holds no PEM certificate", file)
	}
	return pool, nil
}
