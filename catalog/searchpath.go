package catalog

import "strings"

// searchPaths are the settings of search_path that sessions of the database start with.
type searchPaths struct {
	server    string
	everyRole string            // ALTER ROLE ALL SET
	database  string            // ALTER DATABASE d SET, which is ALTER ROLE ALL IN DATABASE d SET
	roles     map[string]string // ALTER ROLE r SET
	inDB      map[string]string // ALTER ROLE r IN DATABASE d SET
}

func (p *searchPaths) set(inDatabase bool, role, setting string) {
	switch {
	case role == "" && inDatabase:
		p.database = setting
	case role == "":
		p.everyRole = setting
	case inDatabase:
		p.inDB[role] = setting
	default:
		p.roles[role] = setting
	}
}

// SearchPath returns the search_path setting a session of this role starts with in this database.
func (c *Catalog) SearchPath(role string) string {
	p := &c.paths
	if s, ok := p.inDB[role]; ok {
		return s
	}
	if s, ok := p.roles[role]; ok {
		return s
	}
	if p.database != "" {
		return p.database
	}
	if p.everyRole != "" {
		return p.everyRole
	}
	return p.server
}

// ParseSearchPath turns a search_path setting, as PostgreSQL prints it, into schema names. "$user"
// becomes the user's name. Schemas that do not exist stay in the list: lookups pass over them.
func ParseSearchPath(setting, user string) []string {
	var path []string
	for rest := strings.TrimLeft(setting, " \t\n\r\f\v"); rest != ""; {
		var name string
		name, rest = nextIdentifier(rest)
		if name == "$user" {
			name = user
		}
		if name != "" {
			path = append(path, name)
		}
	}
	return path
}

// nextIdentifier cuts one identifier and the comma after it, as SplitIdentifierString does:
// unquoted names fold to lower case, quotes are doubled within quotes.
func nextIdentifier(s string) (name, rest string) {
	if !strings.HasPrefix(s, `"`) {
		name, rest, _ = strings.Cut(s, ",")
		return foldASCII(strings.TrimRight(name, spaces)), strings.TrimLeft(rest, spaces)
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			b.WriteByte('"')
			i++
			continue
		}
		_, rest, _ = strings.Cut(s[i+1:], ",")
		return b.String(), strings.TrimLeft(rest, spaces)
	}
	return b.String(), ""
}

const spaces = " \t\n\r\f\v"

// foldASCII lowers as PostgreSQL folds identifiers in multibyte encodings: ASCII letters only.
func foldASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
