package relaytest_test

import (
	"context"
	"fmt"
	"log"

	"binrelay/relay/relaytest"
)

// A transaction on an embedded MySQL server, and what a client of it sees.
func Example() {
	src, err := relaytest.StartSource(relaytest.SourceConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	item := src.CreateTable("CREATE TABLE shop.item (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(8,2))")
	gtid := src.Tx(
		relaytest.Insert(item, 1, "lamp", "12.50"),
		relaytest.Update(item, relaytest.Row(1, "lamp", "12.50"), relaytest.Row(1, "lamp", "9.90")),
	)
	fmt.Println("committed", gtid)
	fmt.Println("executed ", src.GTIDs())
	// Output:
	// committed 5ca1ab1e-0000-4000-8000-000000000001:2
	// executed  5ca1ab1e-0000-4000-8000-000000000001:1-2
}

// The same seed and clock make the same shop.
func ExampleShop() {
	src, err := relaytest.StartSource(relaytest.SourceConfig{Flavor: relaytest.MariaDB})
	if err != nil {
		log.Fatal(err)
	}
	defer src.Close()
	shop := relaytest.NewShop(src, relaytest.ShopConfig{Seed: 42})
	rows := 0
	for range 100 {
		rows += shop.Step()
	}
	fmt.Println(src.GTIDs(), "has", len(shop.Rows(shop.Orders)), "open orders")
	// Output: 0-1-105 has 32 open orders
}

// Events without a server: what a transaction looks like in the binlog.
func ExampleBuilder() {
	b := relaytest.Builder{Flavor: relaytest.MySQL, Pos: 4}
	t := relaytest.CreateTable("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(10))")
	events, err := b.Changes(relaytest.Insert(t, 1, "a"), relaytest.Insert(t, 2, nil))
	if err != nil {
		log.Fatal(err)
	}
	for _, ev := range events {
		fmt.Println("type", ev[4], "of", len(ev), "bytes")
	}
	// Output:
	// type 19 of 67 bytes
	// type 30 of 43 bytes
}

// Records as a plain consumer sees them.
func ExampleKafka() {
	kafka, err := relaytest.StartKafka(relaytest.KafkaConfig{Brokers: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()
	if err := kafka.CreateTopic("shop.item", 12, nil); err != nil {
		log.Fatal(err)
	}
	records, err := kafka.Records(context.Background(), "shop.item")
	fmt.Println(len(records), err)
	// Output: 0 <nil>
}
