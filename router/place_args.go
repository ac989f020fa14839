package router

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// placingParameters are the parameters of the placing functions, with the names and in the order that Citus
// gave them; what Citus does not have follows.
var placingParameters = map[string][]string{
	"create_distributed_table": {
		"table_name", "distribution_column", "distribution_type", "colocate_with", "shard_count",
		"strategy", "hash_columns", "split_at", "regions", "default_region", "assign_by",
	},
	"create_reference_table":            {"table_name"},
	"undistribute_table":                {"table_name"},
	"citus_add_local_table_to_metadata": {"table_name", "cascade_via_foreign_keys"},
	"create_distributed_schema":         {"schema_name"},
	"undistribute_schema":               {"schema_name"},
	"citus_schema_distribute":           {"schema_name"},
	"citus_schema_undistribute":         {"schema_name"},
	"directory_get":                     {"table_name", "key"},
	"directory_set":                     {"table_name", "key", "shard", "node"},
	"directory_list":                    {"table_name", "after", "limit"},
	"directory_import":                  {"table_name", "entries"},
	"create_distributed_function":       {"function_name", "distribution_arg_name", "colocate_with"},
	"undistribute_function":             {"function_name"},
}

// positional is how many arguments may be given without a name.
const positional = 5

// placingAliases are other names of parameters.
var placingAliases = map[string]string{"columns": "distribution_column", "column": "distribution_column"}

// mentionsPlacing reports a text that names one of these functions.
func mentionsPlacing(text []byte) bool {
	lower := bytes.ToLower(text)
	for name := range placingParameters {
		if bytes.Contains(lower, []byte(name)) {
			return true
		}
	}
	return false
}

// placingArgs gives each argument its name and its value as text; NULL is as good as none.
func placingArgs(ctx context.Context, p *plan.Placing, values [][]byte, home *pool.Conn) (map[string]string, error) {
	names := placingParameters[p.Function]
	args, seen := map[string]string{}, map[string]bool{}
	for i := range p.Args {
		a := &p.Args[i]
		name := a.Name
		if name == "" {
			if i >= min(len(names), positional) {
				return nil, pgwire.Errorf("42883", "function %s has at most %d arguments without a name", p.Function, min(len(names), positional))
			}
			name = names[i]
		}
		if alias := placingAliases[name]; alias != "" {
			name = alias
		}
		if !slices.Contains(names, name) {
			return nil, pgwire.Errorf("42883", "function %s has no argument %q", p.Function, name).
				WithHint("Its arguments are %s.", strings.Join(names, ", "))
		}
		if seen[name] {
			return nil, pgwire.Errorf("42601", "argument name %q used more than once", name)
		}
		seen[name] = true
		value, err := placingValue(ctx, a, values, home)
		if err != nil {
			return nil, err
		}
		if value != nil {
			args[name] = string(value)
		}
	}
	if args[names[0]] == "" {
		return nil, pgwire.Errorf("22023", "%s needs the name of a %s", p.Function, strings.TrimSuffix(names[0], "_name"))
	}
	return args, nil
}

func placingValue(ctx context.Context, a *plan.PlacingArg, values [][]byte, home *pool.Conn) ([]byte, error) {
	param := func(n int) ([]byte, error) {
		if n > len(values) {
			return nil, pgwire.Errorf("42P02", "there is no parameter $%d", n)
		}
		return values[n-1], nil
	}
	switch {
	case a.SQL != "":
		params := make([][]byte, len(a.Params))
		for i, n := range a.Params {
			v, err := param(n)
			if err != nil {
				return nil, err
			}
			params[i] = v
		}
		rows, err := home.QueryParams(ctx, "SELECT ("+a.SQL+")::pg_catalog.text", params...)
		if err != nil {
			return nil, err
		}
		return rows[0][0], nil
	case a.Null:
		return nil, nil
	case a.Param > 0:
		return param(a.Param)
	}
	return []byte(a.Value), nil
}

// distributeSpec is what a call of create_distributed_table asks for.
type distributeSpec struct {
	columns    []string    // of the key as they are written, or none
	dimensions []dimension // none: those of the table that it is co-located with
	with       string      // a table's name, "default" or "none"
	shards     int         // 0: as many as usual
	splitAt    string      // an array as PostgreSQL writes it
	regions    []regionSpec
	fallback   string // the default region
	assignBy   string // of a directory
}

// dimension is a part of the strategy: its method, and its columns as they are written.
type dimension struct {
	method  keyspace.Method
	columns []string
}

// readSpec reads the arguments of create_distributed_table.
func readSpec(args map[string]string) (*distributeSpec, error) {
	s := &distributeSpec{with: args["colocate_with"], splitAt: args["split_at"], fallback: args["default_region"]}
	if s.with == "" {
		s.with = "default"
	}
	var err error
	if s.columns, err = splitNames(args["distribution_column"]); err != nil {
		return nil, err
	}
	if s.shards, err = readCount("shard_count", args["shard_count"], keyspace.MaxShards); err != nil {
		return nil, err
	}
	if s.regions, err = readRegions(args["regions"]); err != nil {
		return nil, err
	}
	strategy, err := readStrategy(args)
	if err != nil {
		return nil, err
	}
	hashed, err := readCount("hash_columns", args["hash_columns"], max(1, len(s.columns)))
	if err != nil {
		return nil, err
	}
	if err := s.readDimensions(strategy, hashed); err != nil {
		return nil, err
	}
	s.assignBy = strings.ToLower(args["assign_by"])
	return s, s.check()
}

// readStrategy takes the strategy under its own name or the one that Citus has for it.
func readStrategy(args map[string]string) (string, error) {
	strategy, citus := args["strategy"], args["distribution_type"]
	switch {
	case strategy == "":
		strategy = citus
	case citus != "" && !strings.EqualFold(citus, strategy):
		return "", pgwire.Errorf("22023", "strategy %q contradicts distribution_type %q", strategy, citus)
	}
	return strings.TrimSpace(strategy), nil
}

func readCount(name, text string, most int) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		what := "number of shards"
		if name != "shard_count" {
			what = "number of key columns"
		}
		return 0, pgwire.Errorf("22023", "%s %q is not a %s", name, text, what).WithHint("It is from 1 to %d.", most)
	}
	return n, nil
}

// readDimensions turns a strategy's name, or its parts with their columns, into dimensions.
func (s *distributeSpec) readDimensions(strategy string, hashed int) error {
	if strings.Contains(strategy, "(") {
		if hashed > 0 {
			return pgwire.Errorf("22023", "hash_columns does not go with a strategy that names its columns").
				WithHint("Write strategy => 'hash(a), range(b)'.")
		}
		return s.readComposite(strategy)
	}
	if strategy == "" && hashed == 0 {
		if s.colocated() || s.regionsGiven() {
			return nil // check says what is missing
		}
		strategy = "hash"
	}
	if len(s.columns) == 0 {
		return pgwire.Errorf("22023", "create_distributed_table needs the key's columns").
			WithHint("Write create_distributed_table('table', 'column') or name them in the strategy: 'hash(column)'.")
	}
	method, err := readMethod(strategy)
	if err != nil && strategy != "" {
		return err
	}
	switch first, rest := s.columns[:1], s.columns[1:]; {
	case hashed > 0 && method != keyspace.Hash && strategy != "":
		return pgwire.Errorf("22023", "hash_columns goes with strategy \"hash\"")
	case hashed > 0 && hashed < len(s.columns):
		s.dimensions = []dimension{{keyspace.Hash, s.columns[:hashed]}, {keyspace.Range, s.columns[hashed:]}}
	case method == keyspace.List && len(rest) == 0:
		s.dimensions = []dimension{{keyspace.List, first}, {keyspace.Hash, first}}
	case method == keyspace.List:
		s.dimensions = []dimension{{keyspace.List, first}, {keyspace.Hash, rest}}
	case hashed > 0:
		s.dimensions = []dimension{{keyspace.Hash, s.columns}}
	default:
		s.dimensions = []dimension{{method, s.columns}}
	}
	return nil
}

func (s *distributeSpec) colocated() bool    { return s.with != "default" && s.with != "none" }
func (s *distributeSpec) regionsGiven() bool { return len(s.regions) > 0 || s.fallback != "" }

// strategyHint lists what a strategy can be.
const strategyHint = `Strategies are "hash", "range", "list", "directory", and sequences of the first three such as 'list(region), hash(tenant_id), range(created_at)'.`

func readMethod(name string) (keyspace.Method, error) {
	switch m := keyspace.Method(strings.ToLower(name)); m {
	case keyspace.Hash, keyspace.Range, keyspace.List, keyspace.Directory:
		return m, nil
	case keyspace.Schema:
		return "", pgwire.Errorf("22023", "strategy \"schema\" is for whole schemas, not for a table").
			WithHint("Write SELECT create_distributed_schema('schema').")
	}
	return "", pgwire.Errorf("22023", "unrecognized strategy %q", name).WithHint("%s", strategyHint)
}

// readComposite reads 'list(region), hash(tenant_id), range(created_at)'.
func (s *distributeSpec) readComposite(text string) error {
	var named []string
	for rest := text; rest != ""; {
		name, after, ok := strings.Cut(rest, "(")
		end := closing(after)
		if !ok || end < 0 {
			return pgwire.Errorf("42601", "syntax error in strategy %q", text).WithHint("%s", strategyHint)
		}
		method, err := readMethod(strings.TrimSpace(name))
		if err != nil {
			return err
		}
		columns, err := splitNames(after[:end])
		if err != nil {
			return err
		}
		if len(columns) == 0 {
			return pgwire.Errorf("42601", "syntax error in strategy %q: %s has no columns", text, method)
		}
		s.dimensions = append(s.dimensions, dimension{method, columns})
		for _, c := range columns {
			if !slices.Contains(named, c) {
				named = append(named, c)
			}
		}
		rest = strings.TrimSpace(after[end+1:])
		if rest == "" {
			break
		}
		if rest, ok = strings.CutPrefix(rest, ","); !ok || strings.TrimSpace(rest) == "" {
			return pgwire.Errorf("42601", "syntax error in strategy %q", text).WithHint("%s", strategyHint)
		}
	}
	if len(s.columns) > 0 && !slices.Equal(s.columns, named) {
		return pgwire.Errorf("22023", "the columns %s are not those of the strategy, %s", strings.Join(s.columns, ", "), strings.Join(named, ", ")).
			WithHint("Leave one of them out.")
	}
	s.columns = named
	return nil
}

// closing finds the parenthesis that ends a list of names.
func closing(text string) int {
	quoted := false
	for i := range len(text) {
		switch text[i] {
		case '"':
			quoted = !quoted
		case ')':
			if !quoted {
				return i
			}
		}
	}
	return -1
}

// check refuses arguments that do not go together.
func (s *distributeSpec) check() error {
	if len(s.dimensions) == 0 && !s.colocated() {
		return pgwire.Errorf("22023", "regions go with strategy \"list\"").WithHint("%s", strategyHint)
	}
	hasList := false
	if err := s.checkDirectory(); err != nil {
		return err
	}
	for i, d := range s.dimensions {
		switch {
		case d.method == keyspace.List && i > 0:
			return pgwire.Errorf("22023", "list(%s) must be the first part of the strategy", strings.Join(d.columns, ", ")).
				WithHint("The region decides which nodes there are to choose from.")
		case d.method == keyspace.List && len(d.columns) != 1:
			return pgwire.Errorf("22023", "a list has one column, not %d", len(d.columns))
		}
		hasList = hasList || d.method == keyspace.List
	}
	switch {
	case hasList && len(s.dimensions) == 1:
		s.dimensions = append(s.dimensions, dimension{keyspace.Hash, s.dimensions[0].columns})
	case len(s.dimensions) > 0 && !hasList && s.regionsGiven():
		return pgwire.Errorf("22023", "regions go with strategy \"list\"").WithHint("%s", strategyHint)
	}
	if hasList && !s.colocated() && !s.regionsGiven() {
		return pgwire.Errorf("22023", "strategy \"list\" needs regions").
			WithHint(`Write regions => '{"eu": ["de", "fr"], "us": ["us"]}', with the names of node regions.`)
	}
	if s.splitAt == "" {
		return nil
	}
	switch {
	case s.colocated():
		return pgwire.Errorf("22023", "split_at does not go with colocate_with: the shards are those of %s", s.with)
	case s.dimensions[0].method != keyspace.Range:
		return pgwire.Errorf("22023", "split_at goes with strategies that begin with a range").
			WithHint("Hashes are cut into shard_count equal shards.")
	case s.shards > 0:
		return pgwire.Errorf("22023", "split_at does not go with shard_count: each value begins a shard")
	}
	return nil
}

// checkDirectory refuses what a directory cannot have: it stands alone and has one column.
func (s *distributeSpec) checkDirectory() error {
	directory := slices.ContainsFunc(s.dimensions, func(d dimension) bool { return d.method == keyspace.Directory })
	switch {
	case s.assignBy != "" && !directory:
		return pgwire.Errorf("22023", "assign_by goes with strategy \"directory\"")
	case !directory:
		return nil
	case len(s.dimensions) > 1 || len(s.columns) != 1:
		return pgwire.Errorf("22023", "a directory has one column and is not a part of another strategy")
	}
	switch s.assignBy {
	case assignByRows, assignByBytes, assignByWeight:
	case "":
		if !s.colocated() {
			s.assignBy = assignByRows
		}
	default:
		return pgwire.Errorf("22023", "unrecognized assign_by %q", s.assignBy).WithHint("It is \"rows\", \"bytes\" or \"weight\".")
	}
	return nil
}
