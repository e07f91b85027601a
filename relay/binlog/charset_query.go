package binlog

// Status variables of a QUERY event, as far as they come before the charset.
const (
	statusFlags         = 0
	statusSQLMode       = 1
	statusCatalog       = 2 // with a final 0
	statusAutoIncrement = 3
	statusCharset       = 4
	statusCatalogNZ     = 6
)

// queryCharset is the charset that a statement's text is in: the client's, which the status variables of
// its QUERY event name. Servers write the variables in ascending order but for the catalog.
func queryCharset(body []byte) *charset {
	c := cursor{b: body}
	c.skip(11)
	vars := cursor{b: c.bytes(int(c.u16()))}
	for len(vars.b) > 0 && !vars.bad {
		switch vars.u8() {
		case statusFlags, statusAutoIncrement:
			vars.skip(4)
		case statusSQLMode:
			vars.skip(8)
		case statusCatalog:
			vars.skip(int(vars.u8()) + 1)
		case statusCatalogNZ:
			vars.skip(int(vars.u8()))
		case statusCharset:
			if cs := charsetOf(uint64(vars.u16())); cs != nil && !vars.bad {
				return cs
			}
			return utf8mb4
		default:
			return utf8mb4
		}
	}
	return utf8mb4
}
