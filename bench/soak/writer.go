package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"binrelay/bench/internal/history"
	"binrelay/bench/services"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
)

// writer is one connection that changes rows which are its own, and remembers what was committed.
type writer struct {
	n       int
	db      *services.DB
	r       *rand.Rand
	conn    *client.Conn
	commits int64 // ver of the writer's own row
	tables  []*owned
	total   *atomic.Int64 // committed row changes of all writers
	hold    *sync.RWMutex // read-locked during a transaction; whoever holds it keeps the database still

	pace    int64 // row changes a second at most; 0: as many as it can
	written int64 // committed row changes of this writer

	undo    []func() // of the transaction under way
	changes int64    // row changes of the transaction under way
}

// owned is a writer's rows of one table.
type owned struct {
	*table
	rows map[string]history.State
	live []string
	at   map[string]int // place in live
	next int
	dead []string
}

func newWriter(n int, db *services.DB, seed uint64, total *atomic.Int64, hold *sync.RWMutex) *writer {
	w := &writer{n: n, db: db, r: rand.New(rand.NewPCG(seed, uint64(n))), total: total, hold: hold}
	for _, t := range writtenTables {
		w.tables = append(w.tables, &owned{table: t, rows: map[string]history.State{}, at: map[string]int{}})
	}
	return w
}

// run writes until ctx ends. Only an error that a restart of the database cannot explain comes back.
func (w *writer) run(ctx context.Context) error {
	defer func() {
		if w.conn != nil {
			w.conn.Close()
		}
	}()
	var next time.Time
	var before int64
	for ctx.Err() == nil {
		if w.pace > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(next)):
			}
			// What a restart held up is not made up for.
			if now := time.Now(); next.Before(now.Add(-time.Second)) {
				next = now
			}
			next = next.Add(time.Duration(w.written-before) * time.Second / time.Duration(w.pace))
			before = w.written
		}
		w.hold.RLock()
		err := w.transaction(ctx)
		w.hold.RUnlock()
		if err != nil {
			return fmt.Errorf("writer %d: %w", w.n, err)
		}
	}
	return nil
}

func (w *writer) transaction(ctx context.Context) error {
	if w.conn == nil && !w.connect(ctx) {
		return nil
	}
	err := w.statements()
	if err == nil && w.r.IntN(12) == 0 {
		_, err = w.conn.Execute("ROLLBACK")
		w.rollback(0)
		if err != nil {
			return w.lost(err)
		}
		return nil
	}
	if err != nil {
		w.rollback(0)
		return w.lost(err)
	}
	if _, err = w.conn.Execute("COMMIT"); err == nil {
		w.commit()
		return nil
	}
	// Whether it was committed only the database knows: the writer's own row tells.
	if err := w.lost(err); err != nil {
		return err
	}
	for {
		if !w.connect(context.WithoutCancel(ctx)) {
			continue
		}
		r, err := w.conn.Execute(fmt.Sprintf("SELECT ver FROM %s WHERE id=%d", writerTable.fullName(), w.n))
		if err != nil {
			if err := w.lost(err); err != nil {
				return err
			}
			continue
		}
		ver := int64(0)
		if r.RowNumber() > 0 {
			ver, _ = r.GetInt(0, 0)
		}
		switch ver {
		case w.commits + 1:
			w.commit()
		case w.commits:
			w.rollback(0)
		default:
			return fmt.Errorf("own row has ver %d, expected %d or one more: the database lost a committed transaction", ver, w.commits)
		}
		return nil
	}
}

// lost closes the connection after an error that a restart explains, and returns any other.
func (w *writer) lost(err error) error {
	var my *mysql.MyError
	if errors.As(err, &my) {
		switch my.Code {
		case mysql.ER_SERVER_SHUTDOWN, mysql.ER_NORMAL_SHUTDOWN, 1152, 1184, 1927, 1290, 3169, 4031: // going down, connection killed
		case mysql.ER_LOCK_DEADLOCK, mysql.ER_LOCK_WAIT_TIMEOUT:
		default:
			return err
		}
	}
	w.conn.Close()
	w.conn = nil
	return nil
}

func (w *writer) connect(ctx context.Context) bool {
	for ctx.Err() == nil {
		c, err := w.db.Connect(database)
		if err == nil {
			if _, err = c.Execute("SET time_zone='+00:00', sql_mode=''"); err == nil {
				err = c.SetCharset("utf8mb4")
			}
			if err == nil {
				w.conn = c
				return true
			}
			c.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false
}

func (w *writer) exec(format string, args ...any) error {
	sql := fmt.Sprintf(format, args...)
	if _, err := w.conn.Execute(sql); err != nil {
		return fmt.Errorf("%.300s: %w", sql, err)
	}
	return nil
}

// statements sends one transaction up to its end.
func (w *writer) statements() error {
	if err := w.exec("BEGIN"); err != nil {
		return err
	}
	own := "UPDATE %[1]s SET ver=ver+1, chk=CRC32(CONCAT(id,':',ver)) WHERE id=%[2]d"
	if w.commits == 0 {
		own = "INSERT INTO %[1]s (id, ver, chk) VALUES (%[2]d, 1, CRC32('%[2]d:1'))"
	}
	if err := w.exec(own, writerTable.fullName(), w.n); err != nil {
		return err
	}
	w.changes++
	for range 1 + w.r.IntN(4) {
		if w.r.IntN(15) == 0 {
			if err := w.exec("INSERT INTO %s.noise (v) VALUES ('n'),('m')", database); err != nil {
				return err
			}
		}
		if w.r.IntN(20) == 0 { // a part that is undone while the rest stays
			if err := w.exec("SAVEPOINT s"); err != nil {
				return err
			}
			mark, changes := len(w.undo), w.changes
			if err := w.statement(); err != nil {
				return err
			}
			if err := w.exec("ROLLBACK TO SAVEPOINT s"); err != nil {
				return err
			}
			w.rollback(mark)
			w.changes = changes
			continue
		}
		if err := w.statement(); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) statement() error {
	t := w.tables[w.r.IntN(len(w.tables))]
	n := 1 + w.r.IntN(20)
	if w.r.IntN(20) == 0 {
		n = 200
	}
	if t.name == "blobs" || t.name == "nopk" {
		n = min(n, 10)
	}
	switch x := w.r.IntN(10); {
	case len(t.live) < 50 || x < 4:
		return w.insert(t, n)
	case x < 8:
		return w.update(t, n)
	case x < 9 || len(t.key) == 0:
		return w.remove(t, min(n, len(t.live)/3))
	default:
		return w.move(t)
	}
}

func (w *writer) insert(t *owned, n int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "INSERT INTO %s VALUES ", t.fullName())
	for i := range n {
		id := w.newID(t)
		ver := t.rows[id].Ver + 1
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "(%s", t.literal(id))
		if t.extra != nil {
			fmt.Fprintf(&b, ",'%s'", t.extra(id))
		}
		fmt.Fprintf(&b, ",%d,%d", ver, history.Check(id, ver))
		for _, c := range t.columns {
			b.WriteString("," + c.value(w.r))
		}
		b.WriteByte(')')
		w.set(t, id, history.State{Ver: ver, Live: true})
	}
	w.changes += int64(n)
	return w.exec("%s", b.String())
}

func (w *writer) update(t *owned, n int) error {
	ids := w.some(t, n)
	var set strings.Builder
	for _, c := range t.columns {
		if w.r.IntN(3) > 0 {
			fmt.Fprintf(&set, ", %s=%s", c.name, c.value(w.r))
		}
	}
	for _, id := range ids {
		w.set(t, id, history.State{Ver: t.rows[id].Ver + 1, Live: true})
	}
	w.changes += int64(len(ids))
	return w.exec("UPDATE %s SET ver=ver+1, chk=CRC32(CONCAT(id,':',ver))%s WHERE id IN (%s)", t.fullName(), set.String(), t.list(ids))
}

func (w *writer) remove(t *owned, n int) error {
	ids := w.some(t, max(n, 1))
	for _, id := range ids {
		w.set(t, id, history.State{Ver: t.rows[id].Ver})
	}
	w.changes += int64(len(ids))
	return w.exec("DELETE FROM %s WHERE id IN (%s)", t.fullName(), t.list(ids))
}

// move changes the primary key of one row: a delete of the old one, then a create of the new one.
func (w *writer) move(t *owned) error {
	old := w.some(t, 1)[0]
	id := w.newID(t)
	ver := t.rows[id].Ver + 1
	w.set(t, old, history.State{Ver: t.rows[old].Ver})
	w.set(t, id, history.State{Ver: ver, Live: true})
	w.changes += 2
	region := ""
	if t.extra != nil {
		region = ", region='" + t.extra(id) + "'"
	}
	return w.exec("UPDATE %s SET id=%s%s, ver=%d, chk=%d WHERE id=%s", t.fullName(), t.literal(id), region, ver, history.Check(id, ver), t.literal(old))
}

// newID is an id that has no row now: a fresh one, or one that was deleted.
func (w *writer) newID(t *owned) string {
	for len(t.dead) > 0 && w.r.IntN(3) == 0 {
		i := w.r.IntN(len(t.dead))
		id := t.dead[i]
		t.dead[i] = t.dead[len(t.dead)-1]
		t.dead = t.dead[:len(t.dead)-1]
		if !t.rows[id].Live {
			return id
		}
	}
	t.next++
	id := fmt.Sprint(w.n*10_000_000 + t.next)
	if t.text {
		id = "w-" + id + "-" + strings.Repeat("k", t.next%9)
	}
	return id
}

// some picks up to n different living rows.
func (w *writer) some(t *owned, n int) []string {
	seen := map[string]bool{}
	for range n {
		seen[t.live[w.r.IntN(len(t.live))]] = true
	}
	ids := make([]string, 0, len(seen))
	for _, id := range t.live { // in the order of live: a map's would differ from run to run
		if len(ids) == len(seen) {
			break
		}
		if seen[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

func (t *owned) list(ids []string) string {
	l := make([]string, len(ids))
	for i, id := range ids {
		l[i] = t.literal(id)
	}
	return strings.Join(l, ",")
}

// set changes the ledger, so that rollback can take it back.
func (w *writer) set(t *owned, id string, s history.State) {
	old, was := t.rows[id]
	t.put(id, s)
	w.undo = append(w.undo, func() {
		if was {
			t.put(id, old)
		} else {
			t.put(id, history.State{})
			delete(t.rows, id)
		}
	})
}

func (t *owned) put(id string, s history.State) {
	was := t.rows[id].Live
	t.rows[id] = s
	switch {
	case s.Live && !was:
		t.at[id] = len(t.live)
		t.live = append(t.live, id)
	case !s.Live && was:
		i, last := t.at[id], t.live[len(t.live)-1]
		t.live[i], t.at[last] = last, i
		t.live = t.live[:len(t.live)-1]
		delete(t.at, id)
		t.dead = append(t.dead, id)
	}
}

func (w *writer) commit() {
	w.commits++
	w.total.Add(w.changes)
	w.written += w.changes
	w.undo, w.changes = w.undo[:0], 0
}

func (w *writer) rollback(mark int) {
	for i := len(w.undo) - 1; i >= mark; i-- {
		w.undo[i]()
	}
	w.undo = w.undo[:mark]
	if mark == 0 {
		w.changes = 0
	}
}

// ledger is all that this writer has committed.
func (w *writer) ledger(into map[history.ID]history.State) {
	if w.commits > 0 {
		into[history.ID{Table: writerTable.fullName(), ID: fmt.Sprint(w.n)}] = history.State{Ver: w.commits, Live: true}
	}
	for _, t := range w.tables {
		for id, s := range t.rows {
			into[history.ID{Table: t.fullName(), ID: id}] = s
		}
	}
}
