package functions

import (
	"errors"
	"math/bits"
	"unicode/utf8"
)

// Type codes of the binlog that Column.Kind does not tell apart.
const (
	typeTiny              = 1
	typeShort             = 2
	typeLong              = 3
	typeLongLong          = 8
	typeInt24             = 9
	typeVarchar           = 15
	typeBlobCompressed    = 140 // MariaDB
	typeVarcharCompressed = 141 // MariaDB
	typeBlob              = 252
	typeString            = 254
)

// typeName is a column's type as information_schema spells it, without anything in parentheses or behind.
func typeName(c *Column) string {
	switch c.Kind {
	case KindInteger:
		switch c.Type {
		case typeTiny:
			return "tinyint"
		case typeShort:
			return "smallint"
		case typeInt24:
			return "mediumint"
		case typeLongLong:
			return "bigint"
		}
		return "int"
	case KindString:
		switch c.Type {
		case typeString:
			return "char"
		case typeBlob, typeBlobCompressed:
			return blobSize(c, "tinytext", "text", "mediumtext", "longtext")
		}
		return "varchar"
	case KindBinary:
		switch c.Type {
		case typeString:
			return "binary"
		case typeBlob, typeBlobCompressed:
			return blobSize(c, "tinyblob", "blob", "mediumblob", "longblob")
		}
		return "varbinary"
	case KindInet:
		if c.Length == 4 {
			return "inet4"
		}
		return "inet6"
	}
	return kindNames[c.Kind]
}

var kindNames = [...]string{
	KindYear: "year", KindBit: "bit", KindDecimal: "decimal", KindFloat: "float", KindDouble: "double", KindEnum: "enum", KindSet: "set",
	KindDate: "date", KindDateTime: "datetime", KindTimestamp: "timestamp", KindTime: "time", KindJSON: "json", KindGeometry: "geometry",
	KindVector: "vector", KindUUID: "uuid",
}

// blobSize picks by what the length prefix can say.
func blobSize(c *Column, tiny, plain, medium, long string) string {
	switch n := int64(c.Length); {
	case n == 1<<8-1:
		return tiny
	case n == 1<<24-1:
		return medium
	case n == 1<<32-1:
		return long
	}
	return plain
}

// mysqlType is a valueFunc: a column's type as information_schema spells it, as far as the stream says it.
func mysqlType(dst []byte, _ Image, c *Column, _ int) ([]byte, error) {
	dst = append(append(dst, '"'), typeName(c)...)
	switch c.Kind {
	case KindString, KindBinary:
		if c.Type != typeBlob && c.Type != typeBlobCompressed {
			dst = appendInParens(dst, c.Length/charBytes(c.Charset))
		}
	case KindBit:
		dst = appendInParens(dst, c.Length)
	case KindDecimal:
		dst = appendInt(append(dst, '('), int64(c.Length))
		dst = append(appendInt(append(dst, ','), int64(c.Scale)), ')')
	case KindDateTime, KindTimestamp, KindTime:
		if c.Length > 0 {
			dst = appendInParens(dst, c.Length)
		}
	case KindEnum, KindSet:
		for n, v := range c.Values {
			dst = append(dst, "(,"[min(n, 1)], '\'')
			for from := 0; ; {
				k := from
				for k < len(v) && v[k] != '\'' {
					k++
				}
				dst = appendEscaped(dst, v[from:k])
				if k == len(v) {
					break
				}
				dst = append(dst, '\'', '\'')
				from = k + 1
			}
			dst = append(dst, '\'')
		}
		dst = append(dst, ')')
	}
	if c.Unsigned {
		dst = append(dst, " unsigned"...)
	}
	return append(dst, '"'), nil
}

func appendInParens(dst []byte, n int) []byte {
	return append(appendInt(append(dst, '('), int64(n)), ')')
}

// charBytes is the most bytes that a character of a charset takes: the stream has the bytes of a column.
func charBytes(charset string) int {
	switch charset {
	case "utf8mb4", "utf16", "utf16le", "utf32", "gb18030":
		return 4
	case "utf8mb3", "utf8", "ujis", "eucjpms":
		return 3
	case "ucs2", "gbk", "gb2312", "big5", "sjis", "cp932", "euckr":
		return 2
	}
	return 1
}

// latin1Tail makes a JSON string of the bytes appended since start: one character per byte.
func latin1Tail(dst []byte, start int) []byte {
	mark := len(dst)
	dst = append(dst, '"')
	for i := start; i < mark; i++ {
		switch b := dst[i]; {
		case b >= utf8.RuneSelf:
			dst = append(dst, 0xc0|b>>6, 0x80|b&0x3f)
		case b < 0x20 || b == '"' || b == '\\':
			dst = appendEscape(dst, b)
		default:
			dst = append(dst, b)
		}
	}
	return replaceTail(append(dst, '"'), start, mark)
}

var errMember = errors.New("a member that the SET does not have")

// setBitsTail makes a JSON string of the members appended since start: the number whose bits they are.
func setBitsTail(dst []byte, start int, values []string) ([]byte, error) {
	var v uint64
	for from := start; from < len(dst); {
		end := from
		for end < len(dst) && dst[end] != ',' {
			end++
		}
		k := 0
		for k < len(values) && values[k] != string(dst[from:end]) {
			k++
		}
		if k >= len(values) {
			return dst, errMember
		}
		v |= 1 << k
		from = end + 1
	}
	return append(appendUint(append(dst[:start], '"'), v), '"'), nil
}

// appendYear appends a YEAR as SELECT prints it, in quotes: 0 is "0000".
func appendYear(dst []byte, im Image, i int) ([]byte, error) {
	dst = append(dst, '"')
	start := len(dst)
	dst, err := im.AppendText(dst, i)
	if len(dst)-start == 1 {
		dst = append(dst[:start], "0000"...)
	}
	return append(dst, '"'), err
}

// unsigned reads digits; over says that they are more than a uint64 holds.
func unsigned(b []byte) (v uint64, over bool) {
	for _, c := range b {
		hi, lo := bits.Mul64(v, 10)
		sum, carry := bits.Add64(lo, uint64(c-'0'), 0)
		over = over || hi != 0 || carry != 0
		v = sum
	}
	return v, over
}
