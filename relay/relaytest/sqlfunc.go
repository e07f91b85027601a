package relaytest

import (
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// function evaluates the few SQL functions that replication clients use.
func (e *evaluation) function(name string) (any, error) {
	p := e.p
	p.accept("(")
	var args []any
	for !p.done() && !p.accept(")") {
		v, err := e.expression()
		if err != nil {
			return nil, err
		}
		args = append(args, v)
		p.accept(",")
	}
	s := e.c.s
	switch name {
	case "VERSION":
		return s.cfg.Version, nil
	case "DATABASE", "SCHEMA":
		return nil, nil
	case "USER", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER":
		return s.cfg.User + "@%", nil
	case "CONNECTION_ID":
		return int64(e.c.id), nil
	case "NOW", "CURRENT_TIMESTAMP", "UTC_TIMESTAMP", "SYSDATE":
		return s.cfg.Clock().UTC().Format("2006-01-02 15:04:05"), nil
	case "UNIX_TIMESTAMP":
		return s.cfg.Clock().Unix(), nil
	case "IFNULL", "COALESCE":
		for _, a := range args {
			if a != nil {
				return a, nil
			}
		}
		return nil, nil
	case "CONCAT":
		out := ""
		for _, a := range args {
			out += fmt.Sprint(a)
		}
		return out, nil
	case "LOWER", "LCASE", "UPPER", "UCASE":
		if len(args) == 1 && args[0] != nil {
			if name[0] == 'L' {
				return strings.ToLower(fmt.Sprint(args[0])), nil
			}
			return strings.ToUpper(fmt.Sprint(args[0])), nil
		}
		return nil, nil
	case "GTID_SUBSET":
		if len(args) == 2 {
			a, err1 := parseGTIDSet(fmt.Sprint(args[0]), false)
			b, err2 := parseGTIDSet(fmt.Sprint(args[1]), false)
			if err1 == nil && err2 == nil {
				return logic(b.covers(&a)), nil
			}
		}
		return nil, mysql.NewError(1772, "Malformed GTID set specification")
	case "BINLOG_GTID_POS":
		if len(args) == 2 && s.cfg.Flavor == MariaDB {
			pos, _ := number(args[1])
			return s.stateAt(fmt.Sprint(args[0]), pos), nil
		}
	case "SLEEP":
		return int64(0), nil
	}
	return nil, mysql.NewError(1305, fmt.Sprintf("FUNCTION %s does not exist", name))
}
