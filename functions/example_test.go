package functions_test

import (
	"context"
	"fmt"

	"binrelay/functions"
)

// In the examples, update() is a change of shop.item: qty of row 7 went from 5 to 4.

func ExampleFilter() {
	var soldOut functions.Filter = func(_ context.Context, c *functions.Change) (bool, error) {
		if !c.Changed("qty") {
			return false, nil
		}
		qty, err := c.Row().Int("qty")
		return qty == 0, err
	}
	keep, err := soldOut(context.Background(), update())
	fmt.Println(keep, err)
	// Output: false <nil>
}

func ExampleSerialize() {
	var tagged functions.Serialize = func(_ context.Context, c *functions.Change) ([]*functions.Record, error) {
		r, err := functions.NewRecord(functions.JSON{}, c) // what the relay would send
		if err != nil {
			return nil, err
		}
		r.Topic = "stock." + c.Table.Name
		r.Headers = []functions.Header{{Key: "op", Value: []byte(c.Op.String())}}
		return []*functions.Record{r}, nil
	}
	records, err := tagged(context.Background(), update())
	fmt.Println(records[0].Topic, string(records[0].Key), string(records[0].Headers[0].Value), err)
	// Output: stock.item {"id":7} u <nil>
}

func ExamplePartition() {
	var byID functions.Partition = func(_ context.Context, c *functions.Change, _ *functions.Record, n int) (int, error) {
		id, err := c.Row().Uint("id")
		return int(id % uint64(n)), err
	}
	p, err := byID(context.Background(), update(), &functions.Record{}, 4)
	fmt.Println(p, err)
	// Output: 3 <nil>
}

func ExampleSet() {
	set := functions.Set{
		Filter: func(_ context.Context, c *functions.Change) (bool, error) { return c.Table.Database == "shop", nil },
	} // Serialize and Partition: as FORMAT, TOPIC and PARTITION_BY say
	keep, _ := set.Filter(context.Background(), update())
	fmt.Println(keep)
	// Output: true
}

func ExampleAt() {
	r := functions.Record{Key: []byte("k"), Value: []byte("v"), Partition: functions.At(2)}
	fmt.Println(r.Partition.Get())
	fmt.Println(functions.Record{}.Partition.Get())
	// Output:
	// 2 true
	// -1 false
}

func ExampleNewRecord() {
	r, err := functions.NewRecord(functions.JSON{}, update())
	fmt.Println(string(r.Key), err)
	fmt.Println(string(r.Value))
	// Output:
	// {"id":7} <nil>
	// {"op":"u","before":{"id":7,"qty":5,"name":"cup"},"after":{"id":7,"qty":4,"name":"cup"},"source":{"db":"shop","table":"item","gtid":"0-1-42","file":"binlog.000003","pos":1234,"row":3,"server_id":1,"ts_ms":1760000000123}}
}

func ExampleRow_Get() {
	c := update()
	fmt.Println(c.Before.Get("qty"), c.After.Get("qty"), c.After.Get("no such column"))
	// Output: 5 4 <nil>
}

func ExampleRow_Has() {
	minimal := row(item, int64(7)) // an image that holds the key only
	fmt.Println(minimal.Has("id"), minimal.Has("qty"))
	// Output: true false
}

func ExampleRow_Time() {
	events := table("d", "events", "at:datetime")
	fmt.Println(row(events, "2026-01-02 03:04:05.5").Time("at"))
	fmt.Println(row(events, "0000-00-00 00:00:00").Time("at"))
	// Output:
	// 2026-01-02 03:04:05.5 +0000 UTC <nil>
	// 0001-01-01 00:00:00 +0000 UTC column at of table d.events: "0000-00-00 00:00:00" is not a time of the calendar; String gives it as it is
}

func ExampleRow_Decimal() {
	prices := table("d", "prices", "price:decimal")
	fmt.Println(row(prices, "12.50").Decimal("price"))
	// Output: 12.50 <nil>
}

func ExampleChange_Changed() {
	c := update()
	fmt.Println(c.Changed("qty"), c.Changed("name"))
	// Output: true false
}

func ExampleChange_Key() {
	fmt.Println(update().Key())
	// Output: [7]
}

func ExampleChange_Get() {
	fmt.Println(update().Get("qty"))
	// Output: 4
}

func ExampleParseTopic() {
	topic, err := functions.ParseTopic("cdc.{db}.{table}")
	fmt.Println(string(topic.Append(nil, "shop", "order items")), err)
	_, err = functions.ParseTopic("{schema}")
	fmt.Println(err)
	// Output:
	// cdc.shop.order_x20items <nil>
	// TOPIC: "{schema}": unknown placeholder {schema}; there are {db} and {table}
}

func ExampleCheckTopic() {
	fmt.Println(functions.CheckTopic("orders"))
	fmt.Println(functions.CheckTopic("orders/eu"))
	// Output:
	// <nil>
	// the topic name "orders/eu" has '/', but a topic name holds only letters, digits, '.', '_' and '-'
}
