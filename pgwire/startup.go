package pgwire

import (
	"bytes"
	"strings"
)

// startupParams is a startup packet's content.
type startupParams struct {
	params   map[string]string
	settings []Setting
	unknown  []string // protocol options that are not known here
}

// parseStartup reads the name and value pairs after the version. Its checks, and those of complete,
// come in PostgreSQL's order, so that a packet with several faults gets the same answer.
func parseStartup(body []byte) (*startupParams, error) {
	p := &startupParams{params: make(map[string]string)}
	pos := 0
	for pos < len(body) && body[pos] != 0 {
		name, rest, ok := bytes.Cut(body[pos:], []byte{0})
		if !ok || len(rest) == 0 {
			break
		}
		value, _, _ := bytes.Cut(rest, []byte{0})
		pos += len(name) + 1 + len(value) + 1
		if err := p.add(string(name), string(value)); err != nil {
			return nil, err
		}
	}
	if pos != len(body)-1 {
		return nil, Fatalf(CodeProtocolViolation, "invalid startup packet layout: expected terminator as last byte")
	}
	return p, nil
}

func (p *startupParams) add(name, value string) error {
	if strings.HasPrefix(name, "_pq_.") {
		p.unknown = append(p.unknown, name)
		return nil
	}
	p.params[name] = value
	if isSetting(name) {
		p.settings = append(p.settings, Setting{name, value})
	}
	if name == "replication" {
		return checkReplication(value)
	}
	return nil
}

// complete checks the names and puts the settings of options before the others.
func (p *startupParams) complete() error {
	user, database := p.params["user"], p.params["database"]
	if user == "" {
		return Fatalf(CodeInvalidAuthorization, "no PostgreSQL user name specified in startup packet")
	}
	if database == "" {
		database = user
	}
	p.params["user"] = user[:min(len(user), maxNameSize)]
	p.params["database"] = database[:min(len(database), maxNameSize)]
	settings, err := ParseOptions(p.params["options"])
	if err != nil {
		return err
	}
	p.settings = append(settings, p.settings...)
	return nil
}

// isSetting tells run-time parameters from what the packet says about the connection itself.
func isSetting(name string) bool {
	switch name {
	case "user", "database", "options", "replication":
		return false
	}
	return true
}

func checkReplication(value string) error {
	on, ok := parseBool(value)
	switch {
	case value == "database" || ok && on:
		return Fatalf(CodeFeatureNotSupported, "replication connections are not supported by a router").
			WithHint("Connect to a node directly.")
	case !ok:
		return Fatalf(CodeInvalidParameter, "invalid value for parameter %q: \"%s\"", "replication", value).
			WithHint(`Valid values are: "false", 0, "true", 1, "database".`)
	}
	return nil
}

// parseBool reads a boolean as PostgreSQL does: any unambiguous beginning of the words counts.
func parseBool(value string) (result, ok bool) {
	word := strings.ToLower(value)
	prefixOf := func(full string, least int) bool {
		return len(word) >= least && strings.HasPrefix(full, word)
	}
	switch {
	case word == "1", prefixOf("true", 1), prefixOf("yes", 1), prefixOf("on", 2):
		return true, true
	case word == "0", prefixOf("false", 1), prefixOf("no", 1), prefixOf("off", 2):
		return false, true
	}
	return false, false
}
