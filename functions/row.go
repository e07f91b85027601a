package functions

// Image is one row image as the source sent it, decoded on demand. The relay's binlog package
// implements it; users read it through Row.
type Image interface {
	// Has reports whether the image holds column i (MINIMAL and NOBLOB images leave columns out).
	Has(i int) bool
	// IsNull reports whether column i is there and NULL.
	IsNull(i int) bool
	// Value decodes column i into the Go type of its Kind; nil for NULL or absent.
	Value(i int) (any, error)
	// AppendJSON appends the JSON form of column i: a value of FORMAT=json's table, or null.
	AppendJSON(dst []byte, i int) ([]byte, error)
	// AppendText appends the bare text of column i, nothing for NULL or absent: what SELECT prints, neither
	// quoted nor escaped. Bytes are themselves, a GEOMETRY is its SRID (4 bytes, little-endian) and WKB,
	// numbers, BIT and VECTOR are spelled as in AppendJSON.
	AppendText(dst []byte, i int) ([]byte, error)
	// AppendRowJSON appends {"name":value,...} of all columns present, in table order.
	AppendRowJSON(dst []byte) ([]byte, error)
	// AppendColumnsJSON is AppendRowJSON for the given columns in the given order (keys).
	AppendColumnsJSON(dst []byte, columns []int) ([]byte, error)
}

// Row is one image of a row. Reading a column decodes that column only.
// The zero Row is absent: it has no columns.
type Row struct {
	table *Table
	image Image
}

// NewRow makes a Row over an image; sources and tests use it.
func NewRow(t *Table, im Image) Row { return Row{t, im} }

// IsZero reports whether the row is absent (Before of a Create, After of a Delete).
func (r Row) IsZero() bool { return r.image == nil }

// Table is the shape the row was written with, nil for an absent row.
func (r Row) Table() *Table { return r.table }

// Image gives positional access by column index, for formats and generic code; nil for an absent row.
func (r Row) Image() Image { return r.image }
