package binlog

import (
	"bytes"
	"compress/flate"
	_ "embed"
	"encoding/binary"
	"io"
	"sync"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
)

// charsetTables holds what a real server converts each code to, see TestCharsetTables, which also writes it:
// for each of singleByte and then of multiByte a length u32 and so many bytes of deflated little-endian
// u16. Tables of several bytes are stored as the exclusive or with what x/text says: the servers' mappings differ
// from the web's in some hundred to thousand places each (vendor rows, wave dash, private-use areas).
//
//go:embed charset_tables.bin
var charsetTables []byte

// singleByte and multiByte are the charsets in the order of charsetTables.
var singleByte = []string{
	"armscii8", "ascii", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "dec8", "geostd8", "greek", "hebrew",
	"hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7", "macce", "macroman", "swe7", "tis620",
}

var multiByte = []struct {
	name string
	base encoding.Encoding
}{
	{"big5", traditionalchinese.Big5},
	{"cp932", japanese.ShiftJIS},
	{"eucjpms", japanese.EUCJP},
	{"euckr", korean.EUCKR},
	{"gb18030", simplifiedchinese.GB18030},
	{"gb2312", simplifiedchinese.GBK},
	{"gbk", simplifiedchinese.GBK},
	{"sjis", japanese.ShiftJIS},
	{"ujis", japanese.EUCJP},
}

var utf8mb4 = &charset{name: "utf8mb4", kind: charsetUTF8, ascii: true}

// loaded keeps each charset from its first use on; a relay meets two or three of them.
var loaded struct {
	sync.Mutex
	byName map[string]*charset
}

// charsetNamed returns the charset called name, nil for one that no server has.
func charsetNamed(name string) *charset {
	switch name {
	case "utf8mb4":
		return utf8mb4
	case "utf8", "utf8mb3":
		name = "utf8mb3"
	}
	loaded.Lock()
	defer loaded.Unlock()
	if cs := loaded.byName[name]; cs != nil {
		return cs
	}
	cs := loadCharset(name)
	if cs != nil {
		if loaded.byName == nil {
			loaded.byName = make(map[string]*charset)
		}
		loaded.byName[name] = cs
	}
	return cs
}

func loadCharset(name string) *charset {
	switch name {
	case "utf8mb3":
		return &charset{name: name, kind: charsetUTF8, ascii: true}
	case "ucs2":
		return &charset{name: name, kind: charsetUCS2}
	case "utf16":
		return &charset{name: name, kind: charsetUTF16}
	case "utf16le":
		return &charset{name: name, kind: charsetUTF16LE}
	case "utf32":
		return &charset{name: name, kind: charsetUTF32}
	}
	cs := &charset{name: name, kind: charsetTable}
	section := 0
	for _, n := range singleByte {
		if n == name {
			cs.setTables(inflate(section))
			return cs
		}
		section++
	}
	for _, m := range multiByte {
		if m.name == name {
			codes := inflate(section)
			for i, v := range baseCodes(m.base, len(codes)) {
				codes[i] ^= v
			}
			cs.setTables(codes)
			return cs
		}
		section++
	}
	return nil
}

// inflate returns a section of charsetTables. The data is part of the program, so damage is a panic.
func inflate(section int) []uint16 {
	b := charsetTables
	for ; section > 0; section-- {
		b = b[4+binary.LittleEndian.Uint32(b):]
	}
	raw, err := io.ReadAll(flate.NewReader(bytes.NewReader(b[4 : 4+binary.LittleEndian.Uint32(b)])))
	if err != nil {
		panic("charset_tables.bin: " + err.Error())
	}
	codes := make([]uint16, len(raw)/2)
	for i := range codes {
		codes[i] = binary.LittleEndian.Uint16(raw[2*i:])
	}
	return codes
}

// Lengths of the parts of a table, in the order in which a section holds them.
const (
	tableOne   = 256
	tableTwo   = 128 * 256
	tableThree = 94 * 94
)

// hasThree and hasFour say which further part a charset has.
func hasThree(size int) bool { return size == tableOne+tableTwo+tableThree }
func hasFour(size int) bool  { return size == tableOne+tableTwo+gb18030Basic }

func (cs *charset) setTables(codes []uint16) {
	cs.one = (*[256]uint16)(codes)
	cs.ascii = true
	for b := range uint16(0x80) {
		cs.ascii = cs.ascii && cs.one[b] == b
	}
	if len(codes) == tableOne {
		return
	}
	cs.two = codes[tableOne:][:tableTwo]
	for i, v := range cs.two {
		if v != 0 {
			cs.lead[0x80+i>>8] = true
			cs.trail[i&0xff] = true
		}
	}
	switch {
	case hasThree(len(codes)):
		cs.three = codes[tableOne+tableTwo:]
	case hasFour(len(codes)):
		cs.four = (*gb18030x4)(codes[tableOne+tableTwo:])
	}
}

// codeBytes is the code of entry i of a table.
func codeBytes(i int, size int) []byte {
	if i < tableOne {
		return []byte{byte(i)}
	}
	i -= tableOne
	if i < tableTwo {
		return []byte{0x80 + byte(i>>8), byte(i)}
	}
	i -= tableTwo
	if hasThree(size) {
		return []byte{0x8f, 0xa1 + byte(i/94), 0xa1 + byte(i%94)}
	}
	return []byte{0x81 + byte(i/12600), '0' + byte(i/1260%10), 0x81 + byte(i/10%126), '0' + byte(i%10)}
}

// baseCodes is x/text's mapping in the shape of a table of that size; 0 where it has no single character.
func baseCodes(e encoding.Encoding, size int) []uint16 {
	codes := make([]uint16, size)
	d := e.NewDecoder()
	var out [16]byte
	for i := range codes {
		d.Reset()
		n, _, err := d.Transform(out[:], codeBytes(i, size), true)
		if r := []rune(string(out[:n])); err == nil && len(r) == 1 && r[0] != 0xfffd && r[0] < 0x10000 {
			codes[i] = uint16(r[0])
		}
	}
	return codes
}
