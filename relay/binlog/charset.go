package binlog

// charset is a character set of the servers: it turns bytes into UTF-8.
type charset struct {
	name string
}

var utf8mb4 = &charset{name: "utf8mb4"}

func charsetOf(id uint64) *charset { return utf8mb4 }

func (cs *charset) appendUTF8(dst, s []byte) []byte { return append(dst, s...) }
func appendQuoted(dst []byte, s string) []byte      { return append(append(append(dst, '"'), s...), '"') }
