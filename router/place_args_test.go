package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
)

func (s *distributeSpec) String() string {
	parts := make([]string, len(s.dimensions))
	for i, d := range s.dimensions {
		parts[i] = string(d.method) + "(" + strings.Join(d.columns, ",") + ")"
	}
	return fmt.Sprintf("[%s] %s with=%s shards=%d", strings.Join(s.columns, ","), strings.Join(parts, " "), s.with, s.shards)
}

func TestReadSpec(t *testing.T) {
	t.Parallel()
	const regions = `{"us": ["us"], "eu": ["de", "fr"]}`
	for _, tt := range []struct {
		args string // name=value; ...
		want string // the spec, or the SQLSTATE and a part of the message
	}{
		{"distribution_column=a", "[a] hash(a) with=default shards=0"},
		{"distribution_column=a, b", "[a,b] hash(a,b) with=default shards=0"},
		{`distribution_column={a,"B c"}`, "[a,B c] hash(a,B c) with=default shards=0"},
		{`distribution_column="B c" , a`, "[B c,a] hash(B c,a) with=default shards=0"},
		{`distribution_column="x""y"`, `[x"y] hash(x"y) with=default shards=0`},
		{"distribution_column=a, b, c; hash_columns=1", "[a,b,c] hash(a) range(b,c) with=default shards=0"},
		{"distribution_column=a, b; hash_columns=2", "[a,b] hash(a,b) with=default shards=0"},
		{"distribution_column=a; distribution_type=HASH; shard_count=8", "[a] hash(a) with=default shards=8"},
		{"distribution_column=a, b; strategy=range", "[a,b] range(a,b) with=default shards=0"},
		{"distribution_column=a; strategy=list; regions=" + regions, "[a] list(a) hash(a) with=default shards=0"},
		{"distribution_column=a, b, c; strategy=list; regions=" + regions, "[a,b,c] list(a) hash(b,c) with=default shards=0"},
		{"strategy=list(a); regions=" + regions, "[a] list(a) hash(a) with=default shards=0"},
		{"strategy=list(region), hash(tenant_id), range(created_at); regions=" + regions, "[region,tenant_id,created_at] list(region) hash(tenant_id) range(created_at) with=default shards=0"},
		{"distribution_column=a, b; strategy=Hash(a) , Range( b )", "[a,b] hash(a) range(b) with=default shards=0"},
		{`strategy=hash("a)(")`, "[a)(] hash(a)() with=default shards=0"},
		{"distribution_column=a, b; colocate_with=orders", "[a,b]  with=orders shards=0"},
		{"distribution_column=a; strategy=list; colocate_with=orders", "[a] list(a) hash(a) with=orders shards=0"},

		{"", "22023 needs the key's columns"},
		{"distribution_column=a; strategy=modulo", `22023 unrecognized strategy "modulo"`},
		{"distribution_column=a; strategy=directory", `[a] directory(a) with=default shards=0`},
		{"distribution_column=a,b; strategy=directory", "22023 one column"},
		{"distribution_column=a; strategy=directory; assign_by=luck", "22023 luck"},
		{"strategy=schema", "22023 needs the key's columns"},
		{"strategy=schema(a)", "22023 whole schemas"},
		{"distribution_column=a; strategy=range; distribution_type=hash", "22023 contradicts"},
		{"distribution_column=a, a", "42701 twice"},
		{"distribution_column=a,,b", "42601 zero-length"},
		{`distribution_column="a`, "42601 unterminated"},
		{"distribution_column={a,NULL}", "22P02 malformed"},
		{"distribution_column=a; hash_columns=2", "22023 hash_columns"},
		{"distribution_column=a, b; strategy=range; hash_columns=1", "22023 hash_columns"},
		{"strategy=hash(a), range(b); hash_columns=1", "22023 hash_columns"},
		{"distribution_column=a; shard_count=0", "22023 shard_count"},
		{"distribution_column=a; shard_count=many", "22023 shard_count"},
		{"strategy=hash(a", "42601 syntax error"},
		{"strategy=hash(a) range(b)", "42601 syntax error"},
		{"strategy=hash(a),", "42601 syntax error"},
		{"strategy=hash()", "42601 no columns"},
		{"distribution_column=b, a; strategy=hash(a), range(b)", "22023 not those of the strategy"},
		{"strategy=hash(a), list(b); regions=" + regions, "22023 must be the first part"},
		{"strategy=list(a, b); regions=" + regions, "22023 a list has one column"},
		{"distribution_column=a; strategy=list", "22023 needs regions"},
		{"distribution_column=a; regions=" + regions, `22023 regions go with strategy "list"`},
		{"distribution_column=a; strategy=hash; default_region=eu", `22023 regions go with strategy "list"`},
		{`distribution_column=a; strategy=list; regions=["eu"]`, "22023 not a JSON object"},
		{`distribution_column=a; strategy=list; regions={"eu": "de"}`, "22023 not an array"},
		{`distribution_column=a; strategy=list; regions={"eu": ["de"], "eu": ["fr"]}`, "22023 twice"},
		{`distribution_column=a; strategy=list; regions={"eu": [null]}`, "22023 neither a string"},
		{`distribution_column=a; strategy=list; regions={"eu": ["de"]} x`, "22023 follows"},
		{`distribution_column=a; strategy=list; regions={"": ["de"]}`, "22023 no name"},
		{"distribution_column=a; split_at={1,2}", "22023 begin with a range"},
		{"distribution_column=a; strategy=range; split_at={1,2}; shard_count=3", "22023 shard_count"},
		{"distribution_column=a; strategy=range; split_at={1,2}; colocate_with=t", "22023 colocate_with"},
		{"distribution_column=a; assign_by=rows", "22023 assign_by"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			args := map[string]string{}
			for pair := range strings.SplitSeq(tt.args, "; ") {
				if name, value, ok := strings.Cut(pair, "="); ok {
					args[name] = value
				}
			}
			spec, err := readSpec(args)
			if err == nil {
				if got := spec.String(); got != tt.want {
					t.Errorf("read %s, not %s", got, tt.want)
				}
				return
			}
			var e *pgwire.Error
			code, part, _ := strings.Cut(tt.want, " ")
			if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Message, part) {
				t.Errorf("failed with %v, not %s", err, tt.want)
			}
		})
	}
}

func TestReadRegions(t *testing.T) {
	t.Parallel()
	got, err := readRegions(`{"us": ["us", 1, 1.50, true], "eu": []}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []regionSpec{{name: "eu"}, {name: "us", values: []string{"us", "1", "1.50", "true"}}}
	same := slices.EqualFunc(got, want, func(a, b regionSpec) bool { return a.name == b.name && slices.Equal(a.values, b.values) })
	if !same {
		t.Errorf("read %v, not %v", got, want)
	}
}

func TestRegionsNeedNodes(t *testing.T) {
	t.Parallel()
	m := keyspace.NewMap("test")
	for name, region := range map[string]string{"a": "eu", "b": "us", "c": ""} {
		var err error
		m, err = m.AddNode(keyspace.Node{Name: name, Addresses: []string{"h:1"}, Region: region, State: keyspace.NodeActive})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := checkRegionNodes(m, []regionSpec{{name: "eu"}, {name: "us"}}); err != nil {
		t.Error(err)
	}
	var e *pgwire.Error
	if err := checkRegionNodes(m, []regionSpec{{name: "asia"}}); !errors.As(err, &e) || !strings.Contains(e.Hint, "eu, us") {
		t.Errorf("a region without nodes: %v", err)
	}
}
