package relaytest

import (
	"fmt"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// charset is a character set together with one of its collations: what the binlog tells of a text column.
type charset struct {
	name      string
	collation string
	maxBytes  int
	id        uint16            // of the collation
	mariaID   uint16            // on MariaDB, where another one is the default; 0: the same
	encoding  encoding.Encoding // nil: UTF-8 or bytes as they are
}

func (c *charset) collationID(f Flavor) uint16 {
	if f == MariaDB && c.mariaID != 0 {
		return c.mariaID
	}
	return c.id
}

func (c *charset) encode(s string) ([]byte, error) {
	if c.encoding == nil {
		return []byte(s), nil
	}
	b, err := c.encoding.NewEncoder().Bytes([]byte(s))
	if err != nil {
		return nil, fmt.Errorf("%q has no form in character set %s", s, c.name)
	}
	return b, nil
}

// charsets holds each character set's default collation first, then other collations by name.
var charsets = []*charset{
	{name: "utf8mb4", collation: "utf8mb4_0900_ai_ci", maxBytes: 4, id: 255, mariaID: 45},
	{name: "utf8mb4", collation: "utf8mb4_general_ci", maxBytes: 4, id: 45},
	{name: "utf8mb4", collation: "utf8mb4_bin", maxBytes: 4, id: 46},
	{name: "utf8mb4", collation: "utf8mb4_unicode_ci", maxBytes: 4, id: 224},
	{name: "utf8mb4", collation: "utf8mb4_0900_bin", maxBytes: 4, id: 309},
	{name: "utf8mb3", collation: "utf8mb3_general_ci", maxBytes: 3, id: 33},
	{name: "utf8mb3", collation: "utf8mb3_bin", maxBytes: 3, id: 83},
	{name: "binary", collation: "binary", maxBytes: 1, id: 63},
	{name: "ascii", collation: "ascii_general_ci", maxBytes: 1, id: 11},
	{name: "ascii", collation: "ascii_bin", maxBytes: 1, id: 65},
	{name: "latin1", collation: "latin1_swedish_ci", maxBytes: 1, id: 8, encoding: charmap.Windows1252},
	{name: "latin1", collation: "latin1_bin", maxBytes: 1, id: 47, encoding: charmap.Windows1252},
	{name: "latin2", collation: "latin2_general_ci", maxBytes: 1, id: 9, encoding: charmap.ISO8859_2},
	{name: "latin5", collation: "latin5_turkish_ci", maxBytes: 1, id: 30, encoding: charmap.ISO8859_9},
	{name: "latin7", collation: "latin7_general_ci", maxBytes: 1, id: 41, encoding: charmap.ISO8859_13},
	{name: "greek", collation: "greek_general_ci", maxBytes: 1, id: 25, encoding: charmap.ISO8859_7},
	{name: "hebrew", collation: "hebrew_general_ci", maxBytes: 1, id: 16, encoding: charmap.ISO8859_8},
	{name: "cp1250", collation: "cp1250_general_ci", maxBytes: 1, id: 26, encoding: charmap.Windows1250},
	{name: "cp1251", collation: "cp1251_general_ci", maxBytes: 1, id: 51, encoding: charmap.Windows1251},
	{name: "cp1256", collation: "cp1256_general_ci", maxBytes: 1, id: 57, encoding: charmap.Windows1256},
	{name: "cp1257", collation: "cp1257_general_ci", maxBytes: 1, id: 59, encoding: charmap.Windows1257},
	{name: "cp850", collation: "cp850_general_ci", maxBytes: 1, id: 4, encoding: charmap.CodePage850},
	{name: "cp866", collation: "cp866_general_ci", maxBytes: 1, id: 36, encoding: charmap.CodePage866},
	{name: "koi8r", collation: "koi8r_general_ci", maxBytes: 1, id: 7, encoding: charmap.KOI8R},
	{name: "koi8u", collation: "koi8u_general_ci", maxBytes: 1, id: 22, encoding: charmap.KOI8U},
	{name: "macroman", collation: "macroman_general_ci", maxBytes: 1, id: 39, encoding: charmap.Macintosh},
	{name: "tis620", collation: "tis620_thai_ci", maxBytes: 1, id: 18, encoding: charmap.Windows874},
	{name: "gbk", collation: "gbk_chinese_ci", maxBytes: 2, id: 28, encoding: simplifiedchinese.GBK},
	{name: "gb2312", collation: "gb2312_chinese_ci", maxBytes: 2, id: 24, encoding: simplifiedchinese.GBK},
	{name: "gb18030", collation: "gb18030_chinese_ci", maxBytes: 4, id: 248, encoding: simplifiedchinese.GB18030},
	{name: "big5", collation: "big5_chinese_ci", maxBytes: 2, id: 1, encoding: traditionalchinese.Big5},
	{name: "sjis", collation: "sjis_japanese_ci", maxBytes: 2, id: 13, encoding: japanese.ShiftJIS},
	{name: "cp932", collation: "cp932_japanese_ci", maxBytes: 2, id: 95, encoding: japanese.ShiftJIS},
	{name: "ujis", collation: "ujis_japanese_ci", maxBytes: 3, id: 12, encoding: japanese.EUCJP},
	{name: "eucjpms", collation: "eucjpms_japanese_ci", maxBytes: 3, id: 97, encoding: japanese.EUCJP},
	{name: "euckr", collation: "euckr_korean_ci", maxBytes: 2, id: 19, encoding: korean.EUCKR},
	{name: "ucs2", collation: "ucs2_general_ci", maxBytes: 2, id: 35, encoding: unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)},
	{name: "utf16", collation: "utf16_general_ci", maxBytes: 4, id: 54, encoding: unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)},
	{name: "utf16le", collation: "utf16le_general_ci", maxBytes: 4, id: 56, encoding: unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)},
	{name: "utf32", collation: "utf32_general_ci", maxBytes: 4, id: 60, encoding: utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)},
}

// findCharset returns the entry for a character set, a collation, or both ("" where not given).
func findCharset(name, collation string) (*charset, error) {
	if strings.EqualFold(name, "utf8") {
		name = "utf8mb3"
	}
	collation = strings.ToLower(collation)
	if strings.HasPrefix(collation, "utf8_") {
		collation = "utf8mb3_" + collation[len("utf8_"):]
	}
	for _, c := range charsets {
		if (name == "" || strings.EqualFold(name, c.name)) && (collation == "" || collation == c.collation) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("character set %q, collation %q: not known here", name, collation)
}
