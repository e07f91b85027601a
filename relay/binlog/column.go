package binlog

import (
	"errors"
	"fmt"

	"binrelay/functions"
)

// Column type codes in a table map (MySQL: enum_field_types).
const (
	typeDecimal     = 0 // before MySQL 5.0
	typeTiny        = 1
	typeShort       = 2
	typeLong        = 3
	typeFloat       = 4
	typeDouble      = 5
	typeTimestamp   = 7 // before MySQL 5.6, and MariaDB with mysql56_temporal_format=OFF
	typeLongLong    = 8
	typeInt24       = 9
	typeDate        = 10
	typeTime        = 11 // as typeTimestamp
	typeDateTime    = 12 // as typeTimestamp
	typeYear        = 13
	typeNewDate     = 14
	typeVarchar     = 15
	typeBit         = 16
	typeTimestamp2  = 17
	typeDateTime2   = 18
	typeTime2       = 19
	typeBlobZ       = 140 // MariaDB COMPRESSED
	typeVarcharZ    = 141 // MariaDB COMPRESSED
	typeVector      = 242
	typeJSON        = 245
	typeNewDecimal  = 246
	typeEnum        = 247
	typeSet         = 248
	typeTinyBlob    = 249
	typeMediumBlob  = 250
	typeLongBlob    = 251
	typeBlob        = 252
	typeVarString   = 253
	typeString      = 254
	typeGeometry    = 255
	maxTimeFraction = 6
)

// conv is how the bytes of a column become a value.
type conv uint8

const (
	convTiny conv = iota
	convShort
	convInt24
	convLong
	convLongLong
	convFloat
	convDouble
	convDecimal
	convYear
	convBit
	convDate
	convTime2
	convDateTime2
	convTimestamp2
	convTimeOld      // no fraction
	convDateTimeOld  // no fraction
	convTimestampOld // no fraction
	convTimeHires    // MariaDB's old formats with a fraction, known by a hint only
	convDateTimeHires
	convTimestampHires
	convEnum
	convSet
	convText
	convTextZ
	convBinary
	convBinaryZ
	convJSON
	convGeometry
	convVector
	convUUID
	convInet4
	convInet6
)

// isText reports whether a type has an entry in the charset metadata of text columns.
func isText(typ byte) bool {
	switch typ {
	case typeString, typeVarString, typeVarchar, typeBlob, typeBlobZ, typeVarcharZ:
		return true
	}
	return false
}

// layout reads one column's metadata and decides how its values are laid out.
func (c *column) layout(fc *functions.Column, typ byte, meta *cursor) error {
	if typ == typeString { // carries the real type and, in two spare bits of it, the upper length bits
		hi, lo := meta.u8(), meta.u8()
		length := int(lo)
		if hi&0x30 != 0x30 {
			length |= int(hi&0x30^0x30) << 4
			hi |= 0x30
		}
		switch typ = hi; typ {
		case typeEnum, typeSet:
			c.typ, fc.Type = typ, typ
			return c.members(fc, typ, int(lo))
		case typeString, typeVarString:
			c.typ, fc.Type = typeString, typeString
			c.conv, fc.Kind = convText, functions.KindString
			c.prefix, fc.Length = 1, length
			if length > 255 {
				c.prefix = 2
			}
			return nil
		default:
			return fmt.Errorf("STRING column of real type %d is unknown to this version", typ)
		}
	}
	c.typ, fc.Type = typ, typ
	integer := func(v conv, size int) error {
		c.conv, c.fixed, fc.Kind = v, size, functions.KindInteger
		return nil
	}
	temporal := func(v conv, k functions.Kind, size int) error {
		c.conv, c.fixed, fc.Kind = v, size, k
		return nil
	}
	fraction := func(v conv, k functions.Kind, size int) error {
		c.fsp = meta.u8()
		if c.fsp > maxTimeFraction {
			return fmt.Errorf("type %d with %d fraction digits", typ, c.fsp)
		}
		fc.Length = int(c.fsp)
		return temporal(v, k, size+int(c.fsp+1)/2)
	}
	blob := func(v conv, k functions.Kind) error {
		c.conv, fc.Kind = v, k
		c.prefix = int(meta.u8())
		if c.prefix < 1 || c.prefix > 4 {
			return fmt.Errorf("type %d with %d length bytes", typ, c.prefix)
		}
		return nil
	}
	sized := func(v conv) error { // TINYTEXT to LONGBLOB
		err := blob(v, functions.KindString)
		fc.Length = int(int64(1)<<(8*min(c.prefix, 4)) - 1)
		return err
	}
	switch typ {
	case typeTiny:
		return integer(convTiny, 1)
	case typeShort:
		return integer(convShort, 2)
	case typeInt24:
		return integer(convInt24, 3)
	case typeLong:
		return integer(convLong, 4)
	case typeLongLong:
		return integer(convLongLong, 8)
	case typeYear:
		return temporal(convYear, functions.KindYear, 1)
	case typeFloat:
		meta.skip(1)
		return temporal(convFloat, functions.KindFloat, 4)
	case typeDouble:
		meta.skip(1)
		return temporal(convDouble, functions.KindDouble, 8)
	case typeNewDecimal:
		c.prec, c.scale = meta.u8(), meta.u8()
		fc.Length, fc.Scale = int(c.prec), int(c.scale)
		if c.prec > 65 || c.prec == 0 || c.scale > c.prec {
			return fmt.Errorf("DECIMAL(%d,%d)", c.prec, c.scale)
		}
		return temporal(convDecimal, functions.KindDecimal, decimalSize(c.prec, c.scale))
	case typeBit:
		rest, whole := int(meta.u8()), int(meta.u8())
		fc.Length = whole*8 + rest
		if rest > 7 || fc.Length < 1 || fc.Length > 64 {
			return fmt.Errorf("BIT(%d)", fc.Length)
		}
		return temporal(convBit, functions.KindBit, (fc.Length+7)/8)
	case typeDate, typeNewDate:
		return temporal(convDate, functions.KindDate, 3)
	case typeTime:
		return temporal(convTimeOld, functions.KindTime, 3)
	case typeDateTime:
		return temporal(convDateTimeOld, functions.KindDateTime, 8)
	case typeTimestamp:
		return temporal(convTimestampOld, functions.KindTimestamp, 4)
	case typeTime2:
		return fraction(convTime2, functions.KindTime, 3)
	case typeDateTime2:
		return fraction(convDateTime2, functions.KindDateTime, 5)
	case typeTimestamp2:
		return fraction(convTimestamp2, functions.KindTimestamp, 4)
	case typeVarchar, typeVarString, typeVarcharZ:
		fc.Length = int(meta.u16())
		c.conv, fc.Kind, c.prefix = convText, functions.KindString, 1
		if fc.Length > 255 {
			c.prefix = 2
		}
		if typ == typeVarcharZ {
			c.conv = convTextZ
		}
		return nil
	case typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob:
		c.typ, fc.Type = typeBlob, typeBlob
		return sized(convText)
	case typeBlobZ:
		return sized(convTextZ)
	case typeJSON:
		c.isJSON = true
		return blob(convJSON, functions.KindJSON)
	case typeGeometry:
		return blob(convGeometry, functions.KindGeometry)
	case typeVector:
		return blob(convVector, functions.KindVector)
	case typeEnum, typeSet: // no server sends them unpacked, but the layout would be this
		meta.skip(1)
		return c.members(fc, typ, int(meta.u8()))
	}
	return fmt.Errorf("column type %d is unknown to this version", typ)
}

func (c *column) members(fc *functions.Column, typ byte, size int) error {
	c.conv, fc.Kind, c.fixed = convEnum, functions.KindEnum, size
	limit := 2
	if typ == typeSet {
		c.conv, fc.Kind, limit = convSet, functions.KindSet, 8
	}
	if size < 1 || size > limit {
		return errors.New("ENUM or SET of impossible size")
	}
	return nil
}

// binary makes a text column one of bytes: its collation is "binary".
func (c *column) binary(fc *functions.Column) {
	fc.Kind = functions.KindBinary
	if c.conv == convTextZ {
		c.conv = convBinaryZ
		return
	}
	c.conv = convBinary
	if c.typ == typeString {
		c.pad = fc.Length // the log stores BINARY(n) without its trailing zero bytes
	}
}
