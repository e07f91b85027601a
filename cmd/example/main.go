// Command example is a whole relay with functions of its own: it leaves out new orders until they are paid, hides
// customers' addresses, and gives order lines a shape of their own. Copy it, and change the functions.
//
//	go run ./cmd/example demo        # on embedded parts
//	go build -o myrelay ./cmd/example && ./myrelay check && ./myrelay
package main

import (
	"context"
	"encoding/json"
	"strings"

	"binrelay/cmd"
	"binrelay/functions"
)

func main() {
	cmd.Main(functions.Set{Filter: settled, Serialize: serialize})
}

// settled drops orders that nobody has paid yet.
func settled(_ context.Context, c *functions.Change) (bool, error) {
	return c.Table.Name != "orders" || c.Get("status") != "new", nil
}

// serialize picks a shape by table; every other table has the relay's own.
func serialize(_ context.Context, c *functions.Change) ([]*functions.Record, error) {
	switch c.Table.Name {
	case "customers":
		return masked(c)
	case "order_lines":
		return line(c)
	}
	r, err := functions.NewRecord(functions.JSON{}, c)
	return []*functions.Record{r}, err
}

// masked is a customer as analysts may see one: the mail's domain only.
func masked(c *functions.Change) ([]*functions.Record, error) {
	id, err := c.Row().Uint("id")
	if err != nil {
		return nil, err
	}
	customer := struct {
		Op     string `json:"op"`
		ID     uint64 `json:"id"`
		City   any    `json:"city"`
		Mailer string `json:"mailer,omitempty"`
	}{Op: c.Op.String(), ID: id, City: c.Get("city")}
	if mail, ok := c.Get("email").(string); ok { // it may be NULL
		_, customer.Mailer, _ = strings.Cut(mail, "@")
	}
	return record("customers.masked", id, customer)
}

// line is what was sold. Lines that vanish with their order say nothing new.
func line(c *functions.Change) ([]*functions.Record, error) {
	if c.Op == functions.Delete {
		return nil, nil
	}
	order, err := c.Row().Uint("order_id")
	if err != nil {
		return nil, err
	}
	return record("sold", order, map[string]any{"sku": c.Get("sku"), "qty": c.Get("qty"), "price": c.Get("price")})
}

// record is a record whose key decides its partition: all of one id stay in order.
func record(topic string, id uint64, value any) ([]*functions.Record, error) {
	k, err := json.Marshal(id)
	if err != nil {
		return nil, err
	}
	v, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return []*functions.Record{{Topic: topic, Key: k, Value: v}}, nil
}
