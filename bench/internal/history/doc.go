// Package history checks what arrived in Kafka against what was done to the database. It shares no code with
// the relay: it reads JSON with encoding/json and knows the promise only (design A1 and A4).
//
// Every row that the writers make carries "id" (its identity for ever), "ver" (a counter that grows by one with
// each insert or update of that id, deletes and re-creations included) and "chk" (the CRC-32 of "id:ver"). So the
// whole history of an id is known from its last ver alone, and a record that is lost, repeated, moved or altered
// breaks the chain of its id:
//
//	insert  → c after.ver=v+1        update → u before.ver=v, after.ver=v+1        delete → d before.ver=v
//	an UPDATE of the primary key → d of the old id, then c of the new id, both of one (gtid, row)
//
// Add takes the records of each partition in the order of their offsets; Finish compares with the writers'
// ledger, and Compare with the rows that SELECT returns.
package history
