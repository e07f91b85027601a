package relaytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// ShopConfig says how a Shop trades. The zero value is five row changes a second from seed 0.
type ShopConfig struct {
	Database string  // "" means "shop"
	Seed     uint64  // the same seed and clock make the same history
	Rate     float64 // row changes a second, on average; 0 means 5
}

// Shop is a small business that writes its history to a Source: customers come, change their address and
// are forgotten, orders are placed, paid, shipped and cancelled, prices move, and now and then an article
// gets a new number, which changes a primary key. It holds the present rows of its tables, a few hundred at
// most, so that what a consumer rebuilds can be compared with them. It is not safe for concurrent use.
type Shop struct {
	Customers, Items, Orders, OrderLines *Table

	src      *Source
	rng      *rand.Rand
	rate     float64
	rows     map[*Table][][]any
	customer int64 // last number given
	order    int64
	article  int
}

// What the shop keeps at most, so that it can trade for ever.
const (
	shopCustomers = 60
	shopOrders    = 40
	shopItems     = 24
)

// NewShop creates the shop's tables at the source and stocks its shelves.
func NewShop(src *Source, cfg ShopConfig) *Shop {
	db := cfg.Database
	if db == "" {
		db = "shop"
	}
	s := &Shop{src: src, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), rate: cfg.Rate, rows: map[*Table][][]any{}}
	if s.rate <= 0 {
		s.rate = 5
	}
	s.Customers = src.CreateTable("CREATE TABLE " + db + ".customers (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, name VARCHAR(60) NOT NULL, " +
		"email VARCHAR(120), city VARCHAR(60), credit DECIMAL(10,2) NOT NULL, since DATE NOT NULL, seen TIMESTAMP(3) NULL)")
	s.Items = src.CreateTable("CREATE TABLE " + db + ".items (sku VARCHAR(20) NOT NULL PRIMARY KEY, name VARCHAR(60) NOT NULL, " +
		"price DECIMAL(8,2) NOT NULL, stock INT NOT NULL, tags SET('new','sale','fragile','gift') NOT NULL)")
	s.Orders = src.CreateTable("CREATE TABLE " + db + ".orders (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, customer_id BIGINT UNSIGNED NOT NULL, " +
		"status ENUM('new','paid','shipped','delivered') NOT NULL, total DECIMAL(10,2) NOT NULL, details JSON, placed DATETIME(6) NOT NULL)")
	s.OrderLines = src.CreateTable("CREATE TABLE " + db + ".order_lines (order_id BIGINT UNSIGNED NOT NULL, line SMALLINT UNSIGNED NOT NULL, " +
		"sku VARCHAR(20) NOT NULL, qty INT NOT NULL, price DECIMAL(8,2) NOT NULL, PRIMARY KEY (order_id, line))")
	var first []Change
	for range 8 {
		first = append(first, s.newItem())
	}
	src.Tx(first...)
	return s
}

// Tables are the shop's four tables.
func (s *Shop) Tables() []*Table { return []*Table{s.Customers, s.Items, s.Orders, s.OrderLines} }

// Rows are the rows that a table has now, in no order; they belong to the shop.
func (s *Shop) Rows(t *Table) [][]any { return s.rows[t] }

// Run trades until ctx ends, at the configured rate on average: mostly one transaction at a time, now and
// then a burst.
func (s *Shop) Run(ctx context.Context) error {
	for {
		rows := s.Step()
		if s.rng.IntN(20) == 0 {
			for range 4 + s.rng.IntN(8) {
				rows += s.Step()
			}
		}
		pause := time.Duration(float64(rows) / s.rate * (0.5 + s.rng.Float64()) * float64(time.Second))
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// Step commits one transaction and returns how many rows it changed.
func (s *Shop) Step() (rows int) {
	changes := s.changes()
	s.src.Tx(changes...)
	return len(changes)
}

func (s *Shop) changes() []Change {
	n := s.rng.IntN(100)
	customers, orders := len(s.rows[s.Customers]), len(s.rows[s.Orders])
	switch {
	case customers == 0 || n < 10 && customers < shopCustomers:
		return []Change{s.newCustomer()}
	case orders == 0 || n < 45 && orders < shopOrders:
		return s.placeOrder()
	case n < 65:
		return s.advanceOrder()
	case n < 73:
		return s.endOrder(s.rng.IntN(orders))
	case n < 83:
		return []Change{s.update(s.Customers, s.rng.IntN(customers), func(r []any) {
			r[4] = cents(s.rng.IntN(100000) - 20000)
			r[6] = s.src.cfg.Clock().UTC().Truncate(time.Millisecond)
		})}
	case n < 90:
		return []Change{s.update(s.Items, s.rng.IntN(len(s.rows[s.Items])), func(r []any) {
			r[2] = cents(100 + s.rng.IntN(20000))
			r[4] = uint64(s.rng.IntN(16))
		})}
	case n < 94:
		return []Change{s.update(s.Items, s.rng.IntN(len(s.rows[s.Items])), func(r []any) { r[3] = r[3].(int) + 50 })}
	case n < 96:
		if len(s.rows[s.Items]) < shopItems {
			return []Change{s.newItem()}
		}
		return s.advanceOrder()
	case n < 98: // a new article number: the primary key changes
		return []Change{s.update(s.Items, s.rng.IntN(len(s.rows[s.Items])), func(r []any) { r[0] = s.nextSKU() })}
	case customers > 5:
		return []Change{s.remove(s.Customers, s.rng.IntN(customers))}
	}
	return []Change{s.newCustomer()}
}

func (s *Shop) newCustomer() Change {
	s.customer++
	first, last := pick(s.rng, firstNames), pick(s.rng, lastNames)
	email := any(fmt.Sprintf("%s.%d@example.com", first, s.customer))
	if s.rng.IntN(6) == 0 {
		email = nil
	}
	now := s.src.cfg.Clock().UTC()
	return s.insert(s.Customers, uint64(s.customer), first+" "+last, email, pick(s.rng, cities), cents(s.rng.IntN(50000)), now.Format(time.DateOnly), nil)
}

func (s *Shop) newItem() Change {
	return s.insert(s.Items, s.nextSKU(), pick(s.rng, adjectives)+" "+pick(s.rng, things), cents(100+s.rng.IntN(20000)), 20+s.rng.IntN(100), uint64(s.rng.IntN(16)))
}

func (s *Shop) nextSKU() string {
	s.article++
	return fmt.Sprintf("A-%05d", s.article)
}

// placeOrder inserts an order and its lines and takes the goods from the shelf.
func (s *Shop) placeOrder() []Change {
	s.order++
	customer := s.rows[s.Customers][s.rng.IntN(len(s.rows[s.Customers]))]
	lines := 1 + s.rng.IntN(3)
	total := 0
	var inserts, stock []Change
	for line := 1; line <= lines; line++ {
		i := s.rng.IntN(len(s.rows[s.Items]))
		item := s.rows[s.Items][i]
		qty := 1 + s.rng.IntN(3)
		price := item[2].(string)
		total += qty * inCents(price)
		inserts = append(inserts, s.insert(s.OrderLines, uint64(s.order), line, item[0], qty, price))
		stock = append(stock, s.update(s.Items, i, func(r []any) { r[3] = r[3].(int) - qty }))
	}
	details := fmt.Sprintf(`{"channel": %q, "gift": %t, "weight": %.1f}`, pick(s.rng, channels), s.rng.IntN(5) == 0, float64(1+s.rng.IntN(90))/10)
	placed := s.src.cfg.Clock().UTC().Truncate(time.Microsecond)
	order := s.insert(s.Orders, uint64(s.order), customer[0], "new", cents(total), details, placed)
	return append(append([]Change{order}, inserts...), stock...)
}

// advanceOrder moves an order on; a delivered one is archived.
func (s *Shop) advanceOrder() []Change {
	i := s.rng.IntN(len(s.rows[s.Orders]))
	next := map[string]string{"new": "paid", "paid": "shipped", "shipped": "delivered"}[s.rows[s.Orders][i][2].(string)]
	if next == "" {
		return s.endOrder(i)
	}
	return []Change{s.update(s.Orders, i, func(r []any) { r[2] = next })}
}

// endOrder deletes an order with its lines.
func (s *Shop) endOrder(i int) []Change {
	id := s.rows[s.Orders][i][0]
	var out []Change
	for j := len(s.rows[s.OrderLines]) - 1; j >= 0; j-- {
		if s.rows[s.OrderLines][j][0] == id {
			out = append(out, s.remove(s.OrderLines, j))
		}
	}
	return append(out, s.remove(s.Orders, i))
}

func (s *Shop) insert(t *Table, row ...any) Change {
	s.rows[t] = append(s.rows[t], row)
	return Insert(t, row...)
}

func (s *Shop) update(t *Table, i int, change func(row []any)) Change {
	before := s.rows[t][i]
	after := slices.Clone(before)
	change(after)
	s.rows[t][i] = after
	return Update(t, before, after)
}

func (s *Shop) remove(t *Table, i int) Change {
	row := s.rows[t][i]
	last := len(s.rows[t]) - 1
	s.rows[t][i] = s.rows[t][last]
	s.rows[t] = s.rows[t][:last]
	return Delete(t, row...)
}

// fillOrders is how many orders one round of Fill places, pays and deletes again.
const fillOrders = 500

// Fill appends at least n row changes at once and returns how many: rounds of orders that are placed, paid
// and deleted, so that a round leaves the tables as they were and may be repeated under new GTIDs. The
// copies cost no memory and no work until they are read: the source is then never the bottleneck.
func (s *Shop) Fill(n int) (rows int, err error) {
	const base = 1 << 40 // numbers that the trading shop never gives
	placed := time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)
	var round [][]Change
	for i := range fillOrders {
		id := uint64(base + i)
		before := Row(id, uint64(i%977), "new", cents(1000+i), `{"channel": "web", "gift": false, "weight": 1.5}`, placed)
		after := slices.Clone(before)
		after[2] = "paid"
		place, remove := []Change{Insert(s.Orders, before...)}, []Change(nil)
		for line := 1; line <= 3; line++ {
			row := Row(id, line, fmt.Sprintf("A-%05d", i%400), 1+i%4, cents(199+line*i))
			place, remove = append(place, Insert(s.OrderLines, row...)), append(remove, Delete(s.OrderLines, row...))
		}
		round = append(round, place, []Change{Update(s.Orders, before, after)}, append(remove, Delete(s.Orders, after...)))
	}
	const perRound = fillOrders * 9
	times := (n + perRound - 1) / perRound
	return times * perRound, s.src.Repeat(times, round...)
}

func cents(n int) string {
	sign := ""
	if n < 0 {
		sign, n = "-", -n
	}
	return fmt.Sprintf("%s%d.%02d", sign, n/100, n%100)
}

func inCents(s string) (n int) {
	for _, c := range s {
		if c >= '0' && c <= '9' {
			n = n*10 + int(c-'0')
		}
	}
	return n
}

func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

var (
	firstNames = []string{"Ada", "Björn", "Chloé", "Dmitri", "Eva", "Farid", "Grace", "Hiroshi", "Inés", "Jan", "Kwame", "Lin"}
	lastNames  = []string{"Lovelace", "Müller", "García", "Ivanova", "Okafor", "Tanaka", "Novák", "Silva", "Hopper", "Larsen"}
	cities     = []string{"Berlin", "Zürich", "São Paulo", "Kraków", "Nairobi", "東京", "Montréal", "Reykjavík"}
	adjectives = []string{"blue", "small", "wooden", "folding", "quiet", "bright", "warm", "steel"}
	things     = []string{"lamp", "chair", "kettle", "rug", "clock", "shelf", "mug", "blanket"}
	channels   = []string{"web", "app", "store"}
)
