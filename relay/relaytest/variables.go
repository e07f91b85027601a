package relaytest

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// noVariable as a value takes a variable away.
const noVariable = "<none>"

// defaultVariables are a server's system variables, as far as replication clients ask for them.
func defaultVariables(cfg *SourceConfig) map[string]string {
	v := map[string]string{
		"version": cfg.Version, "version_comment": "relaytest embedded source", "port": "3306", "hostname": "relaytest",
		"log_bin": "ON", "log_bin_basename": "/data/binlog", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL",
		"binlog_checksum": map[bool]string{true: "NONE", false: "CRC32"}[cfg.NoChecksum],
		"server_id":       strconv.Itoa(int(cfg.ServerID)), "read_only": "OFF", "super_read_only": "OFF", "max_allowed_packet": "67108864",
		"max_binlog_size": "1073741824", "expire_logs_days": "0", "binlog_expire_logs_seconds": "2592000",
		"lower_case_table_names": "0", "sql_mode": "", "time_zone": "SYSTEM", "system_time_zone": "UTC", "wait_timeout": "28800",
		"interactive_timeout": "28800", "net_write_timeout": "60", "net_read_timeout": "30", "autocommit": "1", "have_ssl": "DISABLED",
		"character_set_server": "utf8mb4", "collation_server": "utf8mb4_general_ci", "character_set_client": "utf8mb4",
		"character_set_connection": "utf8mb4", "character_set_results": "utf8mb4", "character_set_database": "utf8mb4",
		"default_storage_engine": "InnoDB", "transaction_isolation": "REPEATABLE-READ", "tx_isolation": "REPEATABLE-READ",
		"sync_binlog": "1", "binlog_row_event_max_size": strconv.Itoa(maxRowsEventDefault),
	}
	if cfg.TLS != nil {
		v["have_ssl"] = "YES"
	}
	if cfg.Flavor == MariaDB {
		for name, value := range map[string]string{
			"gtid_domain_id": strconv.Itoa(int(cfg.Domain)), "gtid_strict_mode": "ON", "log_bin_compress": "OFF",
			"binlog_annotate_row_events": "ON", "gtid_ignore_duplicates": "OFF", "log_slave_updates": "ON",
			"gtid_slave_pos": "", "super_read_only": noVariable,
		} {
			v[name] = value
		}
		return v
	}
	mode := "ON"
	if cfg.NoGTID {
		mode = "OFF"
	}
	for name, value := range map[string]string{
		"gtid_mode": mode, "enforce_gtid_consistency": mode, "server_uuid": cfg.UUID, "binlog_row_value_options": "",
		"binlog_transaction_compression": "OFF", "log_replica_updates": "ON", "log_slave_updates": "ON",
		"binlog_rows_query_log_events": "OFF", "collation_server": "utf8mb4_0900_ai_ci", "tx_isolation": noVariable,
		"require_secure_transport": "OFF", "default_authentication_plugin": "caching_sha2_password",
	} {
		v[name] = value
	}
	return v
}

// variables is the present state, positions included.
func (s *Source) variables() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]string, len(s.vars)+4)
	if s.cfg.Flavor == MariaDB {
		set := s.executed.String()
		out["gtid_binlog_pos"], out["gtid_current_pos"], out["gtid_binlog_state"] = set, set, set
	} else if out["gtid_executed"], out["gtid_purged"] = "", ""; !s.cfg.NoGTID {
		out["gtid_executed"], out["gtid_purged"] = s.executed.String(), s.log.purged.String()
	}
	for name, value := range s.vars { // what a test set wins
		if value == noVariable {
			delete(out, name)
		} else {
			out[name] = value
		}
	}
	return out
}

// virtualTable returns the columns and rows of a system table.
func (s *Source) virtualTable(c *conn, schema, name string) (columns []string, values [][]any, err error) {
	switch schema + "." + name {
	case "information_schema.columns":
		return s.columnsTable()
	case "information_schema.tables":
		for _, t := range s.sortedTables() {
			values = append(values, []any{"def", t.Database, t.Name, "BASE TABLE", "InnoDB"})
		}
		return []string{"TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "TABLE_TYPE", "ENGINE"}, values, nil
	case "information_schema.schemata":
		seen := map[string]bool{}
		for _, t := range s.sortedTables() {
			if !seen[t.Database] {
				seen[t.Database] = true
				values = append(values, []any{t.Database, "utf8mb4"})
			}
		}
		return []string{"SCHEMA_NAME", "DEFAULT_CHARACTER_SET_NAME"}, values, nil
	case "information_schema.key_column_usage", "information_schema.statistics":
		for _, t := range s.sortedTables() {
			for i, k := range t.Key {
				values = append(values, []any{t.Database, t.Name, "PRIMARY", "PRIMARY", k, i + 1, i + 1, 0})
			}
		}
		return []string{"TABLE_SCHEMA", "TABLE_NAME", "CONSTRAINT_NAME", "INDEX_NAME", "COLUMN_NAME", "ORDINAL_POSITION", "SEQ_IN_INDEX", "NON_UNIQUE"}, values, nil
	case "information_schema.check_constraints":
		for _, t := range s.sortedTables() {
			for i := range t.cols {
				if col := &t.cols[i]; col.json && s.cfg.Flavor == MariaDB { // what makes a LONGTEXT a JSON there
					values = append(values, []any{t.Database, t.Name, col.name, "Column", "json_valid(`" + col.name + "`)"})
				}
			}
		}
		return []string{"CONSTRAINT_SCHEMA", "TABLE_NAME", "CONSTRAINT_NAME", "LEVEL", "CHECK_CLAUSE"}, values, nil
	case "information_schema.collations", "information_schema.collation_character_set_applicability":
		for _, cs := range charsets {
			values = append(values, []any{cs.collation, cs.collation, cs.name, cs.id, cs.id, "Yes"})
		}
		return []string{"COLLATION_NAME", "FULL_COLLATION_NAME", "CHARACTER_SET_NAME", "ID", "COLLATION_ID", "IS_COMPILED"}, values, nil
	case "performance_schema.global_variables", "performance_schema.session_variables", "information_schema.global_variables", "information_schema.system_variables":
		for n, v := range s.variables() {
			values = append(values, []any{n, v, v})
		}
		sort.Slice(values, func(i, j int) bool { return values[i][0].(string) < values[j][0].(string) })
		return []string{"VARIABLE_NAME", "VARIABLE_VALUE", "GLOBAL_VALUE"}, values, nil
	case "information_schema.processlist", "performance_schema.processlist":
		return s.processTable()
	case "information_schema.engines", "information_schema.user_privileges", "information_schema.schema_privileges":
		return nil, nil, unsupported("table " + schema + "." + name)
	case ".dual":
		return nil, [][]any{nil}, nil
	}
	return nil, nil, mysql.NewError(1146, fmt.Sprintf("Table '%s.%s' doesn't exist", schema, name))
}

func (s *Source) sortedTables() (list []*Table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		list = append(list, t)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].String() < list[j].String() })
	return list
}

func (s *Source) columnsTable() (columns []string, values [][]any, err error) {
	columns = []string{
		"TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "COLUMN_NAME", "ORDINAL_POSITION", "COLUMN_DEFAULT", "IS_NULLABLE", "DATA_TYPE",
		"CHARACTER_MAXIMUM_LENGTH", "NUMERIC_PRECISION", "NUMERIC_SCALE", "DATETIME_PRECISION", "CHARACTER_SET_NAME", "COLLATION_NAME",
		"COLUMN_TYPE", "COLUMN_KEY", "EXTRA", "GENERATION_EXPRESSION",
	}
	for _, t := range s.sortedTables() {
		for i := range t.cols {
			c := &t.cols[i]
			var length, precision, scale, fraction, charset, collation any
			switch c.typ {
			case tyString, tyVarchar:
				length = c.chars
			case tyDecimal:
				precision, scale = c.prec, c.scale
			case tyDateTime, tyTimestamp, tyTime:
				fraction = c.prec
			}
			if c.charset != nil && c.charset.name != "binary" {
				charset, collation = c.charset.name, c.charset.collation
			}
			nullable, key := "YES", ""
			if c.notNull {
				nullable = "NO"
			}
			for _, k := range t.Key {
				if strings.EqualFold(k, c.name) {
					key = "PRI"
				}
			}
			dataType, full := strings.ToLower(c.sqlType), c.fullType
			if c.json && s.cfg.Flavor == MariaDB {
				dataType, full, charset, collation = "longtext", "longtext", "utf8mb4", "utf8mb4_bin"
			}
			values = append(values, []any{"def", t.Database, t.Name, c.name, i + 1, nil, nullable, dataType,
				length, precision, scale, fraction, charset, collation, full, key, "", ""})
		}
	}
	return columns, values, nil
}

func (s *Source) processTable() (columns []string, values [][]any, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		command := "Query"
		if c.dumping != "" {
			command = "Binlog Dump"
		}
		host := c.RemoteAddr().String()
		values = append(values, []any{c.id, s.cfg.User, host, nil, command, 0, "", nil})
	}
	return []string{"ID", "USER", "HOST", "DB", "COMMAND", "TIME", "STATE", "INFO"}, values, nil
}
