package binlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"binrelay/functions"
)

var rowShapes = []struct {
	name string
	cols []synthColumn
	row  func(int) []byte
}{
	{"narrow8int", narrowColumns(), narrowRow},
	{"wide14", wideColumns(), wideRow},
}

// BenchmarkRows turns row images into JSON: our decoder, and beside it what the go-mysql library needs to parse the
// same events and a hand-written append to print its values. cpu-ns/row, the collector included, is what to
// compare (design C1: 5×); wall time on a busy machine is not.
func BenchmarkRows(b *testing.B) {
	for _, s := range rowShapes {
		for _, rows := range []int{1, 60} {
			images := make([][]byte, rows)
			for i := range images {
				images[i] = s.row(i)
			}
			perRow := func(b *testing.B, since time.Duration) {
				b.ReportMetric(float64((cpuTime()-since).Nanoseconds())/float64(rows)/float64(b.N), "cpu-ns/row")
			}
			b.Run(fmt.Sprintf("%s/rows=%d/ours", s.name, rows), func(b *testing.B) {
				part := synthPart(s.cols, evWriteRows, images...)
				d := NewDecoders(nil).New()
				var out []byte
				fn := func(c *functions.Change) (err error) {
					out, err = c.After.Image().AppendRowJSON(out[:0])
					return err
				}
				b.ReportAllocs()
				since := cpuTime()
				for b.Loop() {
					if err := d.Decode(1, part, fn); err != nil {
						b.Fatal(err)
					}
				}
				perRow(b, since)
			})
			b.Run(fmt.Sprintf("%s/rows=%d/go-mysql", s.name, rows), func(b *testing.B) {
				p := replication.NewBinlogParser()
				if _, err := p.Parse(formatEvent()); err != nil {
					b.Fatal(err)
				}
				events := [][]byte{wholeEvent(evTableMap, synthTableMap(99, "shop", "orders", s.cols)),
					wholeEvent(evWriteRows, synthRows(evWriteRows, 99, len(s.cols), images...))}
				var out []byte
				b.ReportAllocs()
				since := cpuTime()
				for b.Loop() {
					for _, raw := range events {
						e, err := p.Parse(raw)
						if err != nil {
							b.Fatal(err)
						}
						rows, ok := e.Event.(*replication.RowsEvent)
						if !ok {
							continue
						}
						names := rows.Table.ColumnNameString()
						for _, r := range rows.Rows {
							out = appendLibraryRow(out[:0], names, r)
						}
					}
				}
				perRow(b, since)
			})
		}
	}
}

// cpuTime is what this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// wholeEvent is an event as the library reads it: with a length but no checksum.
func wholeEvent(typ byte, body []byte) []byte { return addEvent(nil, typ, body) }

// formatEvent is the format description that a parser wants first.
func formatEvent() []byte {
	post := []byte{56, 13, 0, 8, 0, 0, 0, 0, 4, 0, 4, 0, 0, 0, 98, 0, 4, 26, 8, 0, 0, 0, 8, 8, 8, 2, 0, 0, 0, 10, 10, 10, 42, 42, 0, 18, 52, 0, 10, 40, 0, 0}
	body := make([]byte, 2+50+4+1)
	body[0] = 4
	copy(body[2:], "8.4.0")
	body[56] = eventHeaderLen
	body = append(append(body, post...), 0) // no checksums
	ev := wholeEvent(evFormat, append(body, 0, 0, 0, 0))
	binary.LittleEndian.PutUint32(ev[len(ev)-4:], crc32.ChecksumIEEE(ev[:len(ev)-4]))
	return ev
}

func appendLibraryRow(dst []byte, names []string, row []any) []byte {
	for i, v := range row {
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		dst = strconv.AppendQuote(append(dst, sep), names[i])
		dst = append(dst, ':')
		switch x := v.(type) {
		case nil:
			dst = append(dst, "null"...)
		case int8:
			dst = strconv.AppendInt(dst, int64(x), 10)
		case int32:
			dst = strconv.AppendInt(dst, int64(x), 10)
		case uint32:
			dst = strconv.AppendUint(dst, uint64(x), 10)
		case int64:
			dst = strconv.AppendInt(dst, x, 10)
		case uint64:
			dst = strconv.AppendUint(dst, x, 10)
		case float64:
			dst = strconv.AppendFloat(dst, x, 'g', -1, 64)
		case string:
			dst = appendQuoted(dst, x)
		case []byte:
			dst = append(dst, '"')
			dst, _ = appendUTF8(dst, x, quoted)
			dst = append(dst, '"')
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return append(dst, '}')
}

// TestNoAllocations: in steady state a row costs no allocation, and a transaction one: its GTID.
func TestNoAllocations(t *testing.T) {
	for _, s := range rowShapes {
		for _, typ := range []byte{evWriteRows, evUpdateRows, evDeleteRows} {
			images := make([][]byte, 60)
			for i := range images {
				images[i] = s.row(i / 2) // updates that change nothing
			}
			part := synthPart(s.cols, typ, images...)
			d := NewDecoders(nil).New()
			out := make([]byte, 0, 4096)
			n := 0
			fn := func(c *functions.Change) (err error) {
				n++
				if !c.After.IsZero() {
					if out, err = c.After.Image().AppendRowJSON(out[:0]); err != nil {
						return err
					}
				}
				out, err = c.Row().Image().AppendColumnsJSON(out[:0], c.Table.Key)
				return err
			}
			allocs := testing.AllocsPerRun(20, func() {
				if err := d.Decode(1, part, fn); err != nil {
					t.Fatal(err)
				}
			})
			if allocs != 0 || n == 0 { // the GTID is the same each time, so not even that
				t.Errorf("%s, event %d: %v allocations, %d changes", s.name, typ, allocs, n)
			}
		}
	}
}
