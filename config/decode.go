package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder fills a struct from YAML nodes. The library's own strict mode stops at the first unknown
// key and speaks of Go types; this one collects every problem with its line and the key's full name.
type decoder struct {
	file     string
	lines    map[string]int
	problems Problems
}

var durationType = reflect.TypeFor[time.Duration]()

func (d *decoder) document(doc *yaml.Node, c *Config) {
	if doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
		d.value(doc.Content[0], reflect.ValueOf(c).Elem(), "")
	}
}

func (d *decoder) fail(n *yaml.Node, key, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: n.Line, Key: key, Message: fmt.Sprintf(format, args...)})
}

func (d *decoder) value(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // "key:" with nothing after it keeps the default
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, v, key)
	case reflect.Slice:
		d.sequence(n, v, key)
	default:
		d.scalar(n, v, key)
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.MappingNode {
		d.fail(n, key, "expected a section with keys, found %s", describe(n))
		return
	}
	fields := fieldsByName(v.Type())
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		full := join(key, name.Value)
		index, known := fields[name.Value]
		if !known {
			d.fail(name, full, "unknown key%s", suggestion(name.Value, fields))
			continue
		}
		if first, twice := seen[name.Value]; twice {
			d.fail(name, full, "given twice, first in line %d", first)
			continue
		}
		seen[name.Value] = name.Line
		d.lines[full] = name.Line
		d.value(value, v.Field(index), full)
	}
}

func (d *decoder) sequence(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n, key, "expected a list, found %s", describe(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		full := fmt.Sprintf("%s[%d]", key, i)
		d.lines[full] = item.Line
		d.value(item, list.Index(i), full)
	}
	v.Set(list)
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n, key, "expected one value, found %s", describe(n))
		return
	}
	if v.Type() == durationType {
		dur, err := time.ParseDuration(n.Value)
		if err != nil && n.Value != "0" {
			d.fail(n, key, "%q is not a duration; write it like 500ms, 30s or 10m", n.Value)
			return
		}
		v.SetInt(int64(dur))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.Value)
	case reflect.Int:
		i, err := strconv.Atoi(n.Value)
		if err != nil {
			d.fail(n, key, "%q is not a whole number", n.Value)
			return
		}
		v.SetInt(int64(i))
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if err != nil {
			d.fail(n, key, "%q is not a number", n.Value)
			return
		}
		v.SetFloat(f)
	case reflect.Bool:
		if n.Value != "true" && n.Value != "false" {
			d.fail(n, key, "%q is neither true nor false", n.Value)
			return
		}
		v.SetBool(n.Value == "true")
	default:
		d.fail(n, key, "no value of Go type %s can be read", v.Type())
	}
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a section with keys"
	case yaml.SequenceNode:
		return "a list"
	default:
		return strconv.Quote(n.Value)
	}
}

func join(section, name string) string {
	if section == "" {
		return name
	}
	return section + "." + name
}

func fieldsByName(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range t.NumField() {
		if tag, ok := t.Field(i).Tag.Lookup("yaml"); ok {
			name, _, _ := strings.Cut(tag, ",")
			fields[name] = i
		}
	}
	return fields
}

// suggestion helps with a slip of the finger: a known key that differs in at most two letters.
func suggestion(name string, fields map[string]int) string {
	best, at := "", 3
	for known := range fields {
		if dist := editDistance(name, known); dist < at || dist == at && known < best {
			best, at = known, dist
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
