package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"binrelay/functions"
	"binrelay/relay"
)

// TestRealBinlogFiles reads the binlog files that the servers' own test suites are made of: MySQL 4.0 to 9, MariaDB
// 5.5 on, whole, cut off and damaged ones. Each is read to its end with all its rows, or refused by an error that says
// where and why; what was committed before that place is there. Most files were written before column names were:
// they are read a second time with names put in, as binlog_row_metadata=FULL would.
func TestRealBinlogFiles(t *testing.T) {
	files := realFiles(t)
	whole, refused, rows := 0, 0, 0
	for _, f := range files {
		f.data = asSent(f.data)
		t.Run(f.name, func(t *testing.T) {
			for _, named := range []bool{false, true} {
				data := f.data
				if named {
					if data = withNames(f.data); data == nil {
						continue
					}
				}
				got := readReal(t, f.name, data)
				want, open, err := countReal(data[:got.at])
				if err != nil {
					t.Logf("the library counts up to an error only: %v", err)
				}
				if got.rows != want && (err == nil || got.rows < want) {
					t.Errorf("named %v: %d rows up to offset %d, the library counts %d (reading ended with %v)", named, got.rows, got.at, want, got.err)
				}
				switch {
				case got.err != nil:
					refused++
					if !saysWhere.MatchString(got.err.Error()) {
						t.Errorf("named %v: the error does not say where: %v", named, got.err)
					}
					if text := got.err.Error(); !named && strings.Contains(text, "checksum of event") && !strings.Contains(text, fmt.Sprintf(":%d ", got.at)) {
						t.Errorf("the event stands at %d: %v", got.at, got.err)
					}
					t.Logf("named %v: %d rows, then refused: %v", named, got.rows, got.err)
				case got.cut:
					refused++
					t.Logf("named %v: %d rows, then the file ends inside an event at %d: no server sends that", named, got.rows, got.at)
				default:
					whole++
					t.Logf("named %v: read to its end: %d rows, %d left open", named, got.rows, open)
				}
				if got.err == nil && f.printed >= 0 && err == nil && got.rows+open != f.printed {
					t.Errorf("named %v: %d rows and %d in a transaction without an end, mariadb-binlog prints %d", named, got.rows, open, f.printed)
				}
				rows += got.rows
			}
		})
	}
	t.Logf("%d files: %d times read to the end, %d times refused, %d rows", len(files), whole, refused, rows)
	if rows < 8000 { // mdev6020-mysql-bin.000001 alone has so many
		t.Errorf("only %d rows were read", rows)
	}
}

// saysWhere matches errors that name an event's offset, the file, or the event.
var saysWhere = regexp.MustCompile(`:\d+\b|format|event of`)

// realRead is how far a file was read.
type realRead struct {
	rows int // of whole transactions
	at   int // offset of the event that was refused, or where the file ends
	cut  bool
	err  error
}

// readReal feeds a file through the assembler and the decoder as the server would send it.
func readReal(t *testing.T, name string, data []byte) (r realRead) {
	t.Helper()
	maria := len(data) > 4+eventHeaderLen+52 && bytes.Contains(data[4+eventHeaderLen:4+eventHeaderLen+52], []byte("MariaDB"))
	decoder := NewDecoders(nil).New()
	var seq uint64
	var out []byte
	parts, events, pending := 0, 0, 0
	tables := Matcher{}
	a := newAssembler(&tables, position{MariaDB: maria, File: name, Pos: 4}, defaultPartBytes, func(p relay.Part) error {
		if parts++; parts > 2*events+2 {
			return fmt.Errorf("%d parts of %d events", parts, events)
		}
		if p.First {
			pending = 0
		}
		if len(p.Data) > 0 {
			seq++
			err := decoder.Decode(seq, p.Data, func(c *functions.Change) (err error) {
				if c.Op == functions.DDL || c.KeyChange && c.Op == functions.Create {
					return nil
				}
				pending++
				for _, row := range []functions.Row{c.Before, c.After} {
					if err == nil && !row.IsZero() {
						out, err = row.Image().AppendRowJSON(out[:0])
					}
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		if !p.More {
			r.rows += pending
			pending = 0
		}
		return nil
	})
	a.park = &parking{dir: t.TempDir()}
	defer a.park.abort()
	for r.at = 4; r.at < len(data); {
		h, ok := parseEventHeader(data[r.at:])
		if !ok || int64(h.Size) > int64(len(data)-r.at) || h.Size < eventHeaderLen {
			r.cut = true
			return r
		}
		events++
		if r.err = a.event(bytes.Clone(data[r.at : r.at+int(h.Size)])); r.err != nil {
			return r
		}
		r.at += int(h.Size)
	}
	return r
}

// asSent clears the flag of a file that was not closed, as a server does when it sends one: the checksum was made
// without it.
func asSent(data []byte) []byte {
	const inUse, flags = 1, 4 + 17
	if h, ok := parseEventHeader(data[4:]); ok && h.Type == evFormat {
		data[flags] &^= inUse
	}
	return data
}

// countReal counts the rows of whole transactions with go-mysql's parser, and those of one that has no end.
func countReal(data []byte) (rows, open int, err error) {
	p := replication.NewBinlogParser()
	xid, prepared := "", map[string]int{} // rows of XA transactions, which happen at XA COMMIT
	var count func(e *replication.BinlogEvent) error
	count = func(e *replication.BinlogEvent) error {
		switch ev := e.Event.(type) {
		case *replication.RowsEvent:
			n := len(ev.Rows)
			if string(ev.Table.Schema) == "mysql" {
				return nil // never selected
			}
			switch e.Header.EventType {
			case replication.UPDATE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv2, replication.PARTIAL_UPDATE_ROWS_EVENT,
				replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1:
				n /= 2
			}
			open += n
		case *replication.XIDEvent:
			rows, open = rows+open, 0
		case *replication.QueryEvent:
			switch q := string(ev.Query); {
			case q == "COMMIT":
				rows, open = rows+open, 0
			case q == "ROLLBACK":
				open = 0
			case strings.HasPrefix(q, "XA START "):
				xid = q[len("XA START "):]
			case strings.HasPrefix(q, "XA COMMIT "):
				rows += prepared[q[len("XA COMMIT "):]]
			}
		case *replication.GenericEvent:
			if e.Header.EventType == replication.XA_PREPARE_LOG_EVENT {
				prepared[xid], open = open, 0
			}
		case *replication.FormatDescriptionEvent, *replication.GTIDEvent, *replication.MariadbGTIDEvent:
			open = 0 // the server crashed in what was open
		case *replication.TransactionPayloadEvent:
			for _, inner := range ev.Events {
				if err := count(inner); err != nil {
					return err
				}
			}
		}
		return nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic of the library: %v", r)
		}
	}()
	if len(data) < 4 {
		return 0, 0, errors.New("no binlog")
	}
	err = p.ParseReader(bytes.NewReader(data[4:]), count)
	return rows, open, err
}

// withNames puts column names and a charset into the table maps that have none; nil where there is none.
func withNames(data []byte) []byte {
	out := append([]byte(nil), data[:4]...)
	found, crc := false, false
	for pos := 4; pos < len(data); {
		h, ok := parseEventHeader(data[pos:])
		if !ok || int64(h.Size) > int64(len(data)-pos) || h.Size < eventHeaderLen {
			out = append(out, data[pos:]...)
			break
		}
		ev := data[pos : pos+int(h.Size)]
		pos += int(h.Size)
		if h.Type == evFormat && len(ev) > 5 {
			crc = ev[len(ev)-5] == 1
		}
		if h.Type != evTableMap || crc && len(ev) < eventHeaderLen+4 {
			out = append(out, ev...)
			continue
		}
		if crc {
			ev = ev[:len(ev)-4]
		}
		p, err := compile(ev[eventHeaderLen:], nil, false)
		if err == nil && len(p.table.Columns) > 0 && p.table.Columns[0].Name == "" {
			found = true
			var names []byte
			for i := range p.table.Columns {
				names = putString(names, fmt.Sprintf("c%d", i+1))
			}
			ev = putMeta(putMeta(bytes.Clone(ev), metaColumnName, names), metaDefaultCharset, []byte{8})
		}
		ev = bytes.Clone(ev)
		if crc {
			binary.LittleEndian.PutUint32(ev[9:], uint32(len(ev)+4))
			ev = binary.LittleEndian.AppendUint32(ev, crc32.ChecksumIEEE(ev))
		} else {
			binary.LittleEndian.PutUint32(ev[9:], uint32(len(ev)))
		}
		out = append(out, ev...)
	}
	if !found {
		return nil
	}
	return out
}
