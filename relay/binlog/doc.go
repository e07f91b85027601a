// Package binlog reads the binlog of a MySQL or MariaDB server over the replication protocol, and turns
// what it has read into changes.
//
// It has two halves that meet only in the encoding of log entries (entry.go):
//
//	Source (this file to xa.go)                            Decoder (decoder.go and the rest)
//	connect ▸ preflight ▸ dump ▸ assemble ▸ relay.Part ═══▶ log ═══▶ table map ▸ row image ▸ functions.Change
//
// Source never decodes a row: it frames transactions, leaves out what TABLES excludes, undoes compression,
// and hands on the server's own bytes.
//
//	src := binlog.NewSource(binlog.Config{Addr: "db:3306", User: "relay", Password: pw, ServerID: 4711})
//	err := src.Stream(ctx, savedPosition, func(p relay.Part) error { return append(p.Data, p.Pos) })
//
// # What makes a transaction
//
// A GTID event (or its anonymous form) begins one and discards a half-received one before it. XID, a COMMIT
// query, a statement that stands alone, XA COMMIT or a whole compressed payload ends it; ROLLBACK and XA
// ROLLBACK end it without its rows. Rows of an XA transaction are parked in a file between its PREPARE and
// its end (xa.go).
//
// # Where reading goes on
//
// By the executed GTID set on MariaDB, and on MySQL with gtid_mode=ON; else by file and offset, on the
// same server only. Both are in every position, so a change of gtid_mode is followed (position.go).
//
// # What it asks a server
//
// SHOW GLOBAL VARIABLES WHERE Variable_name IN (…), SHOW GRANTS, SHOW MASTER STATUS or SHOW BINARY LOG STATUS,
// SHOW BINARY LOGS, SELECT @@GLOBAL.gtid_executed and its like, on MariaDB BINLOG_GTID_POS and information_schema
// (columntypes.go), a few SETs of user variables, COM_REGISTER_SLAVE, and a dump command.
//
// # What it does not promise
//
// It does not reconnect (the relay does), does not track schemas (each table map describes its rows), and does
// not read rows written in statement format: it halts there, naming the statement.
package binlog
