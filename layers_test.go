package pgshoal

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	modulePath    = "github.com/pgshoal/pgshoal"
	architecture  = "ARCHITECTURE.md"
	layersOpening = "```layers"
	layersClosing = "```"
)

// kinds are the second word of a line in the layers block.
var kinds = []string{"pure", "edge", "assembly", "tests"}

// doesIO lists what a pure package must not import: it decides, others do.
var doesIO = []string{
	"net", "net/http", "os", "os/exec", "os/signal", "syscall", "database/sql", "log", "log/slog",
	"github.com/jackc/pgx", "go.etcd.io", "google.golang.org/grpc", "github.com/prometheus",
}

// layer is one line of the block.
type layer struct {
	name, kind string
	rank       int
}

// goPackage is what the files of one directory say about themselves.
type goPackage struct {
	imports     map[string]string // path -> a file that has it
	testImports map[string]string
	documented  bool
	product     bool // has files that are not tests
}

// TestLayers holds the code to the layers block of ARCHITECTURE.md: a package imports only packages
// above it, pure packages do no I/O, and every package is in the block and says why it exists.
func TestLayers(t *testing.T) {
	text, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := parseLayers(string(text))
	if err != nil {
		t.Fatal(err)
	}
	packages, err := readPackages(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range checkLayers(layers, packages) {
		t.Error(problem)
	}
}

func parseLayers(text string) (map[string]layer, error) {
	_, rest, opened := strings.Cut(text, "\n"+layersOpening+"\n")
	block, _, closed := strings.Cut(rest, "\n"+layersClosing+"\n")
	if !opened || !closed {
		return nil, fmt.Errorf("%s has no block that begins with a line %s and ends with a line %s", architecture, layersOpening, layersClosing)
	}
	layers := map[string]layer{}
	for i, line := range strings.Split(block, "\n") {
		words := strings.Fields(line)
		if len(words) < 3 || !slices.Contains(kinds, words[1]) {
			return nil, fmt.Errorf("%s: the layer %q must read: package, one of %s, and what it is for", architecture, line, strings.Join(kinds, "|"))
		}
		if _, twice := layers[words[0]]; twice {
			return nil, fmt.Errorf("%s: the layer %s is listed twice", architecture, words[0])
		}
		layers[words[0]] = layer{name: words[0], kind: words[1], rank: i}
	}
	return layers, nil
}

// readPackages finds the packages below the root, by directory; the root itself is left out.
func readPackages(root fs.FS) (map[string]*goPackage, error) {
	packages := map[string]*goPackage{}
	err := fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(file) {
				return fs.SkipDir
			}
			return nil
		}
		dir := path.Dir(file)
		if dir == "." || path.Ext(file) != ".go" {
			return nil
		}
		if packages[dir] == nil {
			packages[dir] = &goPackage{imports: map[string]string{}, testImports: map[string]string{}}
		}
		return packages[dir].read(root, file)
	})
	return packages, err
}

func skipped(dir string) bool {
	name := path.Base(dir)
	return name == "testdata" || name == "node_modules" || name == "bin" || name == "dist" || (dir != "." && strings.HasPrefix(name, "."))
}

func (p *goPackage) read(root fs.FS, file string) error {
	source, err := fs.ReadFile(root, file)
	if err != nil {
		return err
	}
	tree, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), source, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	imports := p.imports
	switch {
	case strings.HasSuffix(tree.Name.Name, "_test"):
		return nil // a test from outside may use what is built on the package
	case strings.HasSuffix(file, "_test.go"):
		imports = p.testImports
	default:
		p.product = true
		p.documented = p.documented || hasDoc(tree)
	}
	for _, spec := range tree.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		imports[target] = file
	}
	return nil
}

// hasDoc wants a sentence that tells more than the package's name.
func hasDoc(file *ast.File) bool {
	return file.Doc != nil && len(strings.Fields(file.Doc.Text())) >= 6
}

func checkLayers(layers map[string]layer, packages map[string]*goPackage) []string {
	var problems []string
	for _, l := range slices.SortedFunc(maps.Values(layers), func(a, b layer) int { return cmp.Compare(a.rank, b.rank) }) {
		if packages[l.name] == nil {
			problems = append(problems, fmt.Sprintf("%s lists the layer %s, but there is no such package: take the line out", architecture, l.name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		p, l := packages[name], layers[name]
		if p.product && !p.documented {
			problems = append(problems, fmt.Sprintf("package %s has no comment that says why it exists: write one above its package clause", name))
		}
		if l.name == "" {
			problems = append(problems, fmt.Sprintf("package %s is missing in the layers block of %s: add a line below everything that it imports", name, architecture))
			continue
		}
		problems = append(problems, checkImports(layers, l, p)...)
	}
	return problems
}

func checkImports(layers map[string]layer, from layer, p *goPackage) []string {
	var problems []string
	for _, target := range slices.Sorted(maps.Keys(p.imports)) {
		file := p.imports[target]
		name, own := strings.CutPrefix(target, modulePath+"/")
		if !own {
			if from.kind == "pure" && matchesAny(target, doesIO) {
				problems = append(problems, fmt.Sprintf("%s imports %s, but %s is pure: move the I/O to the package that calls it", file, target, from.name))
			}
			continue
		}
		to, listed := layers[name]
		switch {
		case !listed: // said already
		case to.kind == "tests" && from.kind != "tests":
			problems = append(problems, fmt.Sprintf("%s imports %s, which is for tests only", file, name))
		case to.rank >= from.rank:
			problems = append(problems, fmt.Sprintf("%s imports %s, which is below %s in the layers block of %s: imports go up the block only", file, name, from.name, architecture))
		}
	}
	for _, target := range slices.Sorted(maps.Keys(p.testImports)) {
		name, own := strings.CutPrefix(target, modulePath+"/")
		to, listed := layers[name]
		if own && listed && to.rank > from.rank && to.kind != "tests" {
			problems = append(problems, fmt.Sprintf("%s imports %s, which is below %s in the layers block of %s: a test inside a package uses only what is above; make it one from outside, in package x_test", p.testImports[target], name, from.name, architecture))
		}
	}
	return problems
}

// matchesAny compares names of the standard library as they are, and others with all that is below:
// net/url and net/netip do no I/O.
func matchesAny(target string, list []string) bool {
	return slices.ContainsFunc(list, func(name string) bool {
		return target == name || (strings.Contains(name, ".") && strings.HasPrefix(target, name+"/"))
	})
}

// TestLayersFindProblems changes one file of a repository that is right; an empty file is none.
func TestLayersFindProblems(t *testing.T) {
	const doc = "// Package x exists because a test needs it.\n"
	block := "# Title\n" + layersOpening + "\ncore pure decides\nhelp tests helps\nshell edge does\n" + layersClosing + "\n"
	layers, err := parseLayers(block)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, file, source, want string }{
		{"nothing", "core/b.go", doc + `package core; import "net/url"`, ""},
		{"use above", "shell/b.go", `package shell; import ("net"; "` + modulePath + `/core")`, ""},
		{"test helper", "core/b_test.go", `package core; import "` + modulePath + `/help"`, ""},
		{"wrong direction", "core/b.go", `package core; import "` + modulePath + `/shell"`, "core/b.go imports shell, which is below core"},
		{"impure", "core/b.go", `package core; import "github.com/jackc/pgx/v5"`, "core/b.go imports github.com/jackc/pgx/v5, but core is pure"},
		{"helper in product", "shell/b.go", `package shell; import "` + modulePath + `/help"`, "shell/b.go imports help, which is for tests only"},
		{"test reaches down", "core/b_test.go", `package core; import "` + modulePath + `/shell"`, "core/b_test.go imports shell, which is below core"},
		{"test from outside", "core/b_test.go", `package core_test; import "` + modulePath + `/shell"`, ""},
		{"no comment", "shell/a.go", "package shell", "package shell has no comment that says why it exists"},
		{"not listed", "util/a.go", doc + "package util", "package util is missing in the layers block"},
		{"not there", "help/a.go", "", "lists the layer help, but there is no such package"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for _, name := range []string{"core", "help", "shell"} {
				root[name+"/a.go"] = &fstest.MapFile{Data: []byte(doc + "package " + name)}
			}
			if root[tt.file] = (&fstest.MapFile{Data: []byte(tt.source)}); tt.source == "" {
				delete(root, tt.file)
			}
			packages, err := readPackages(root)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(checkLayers(layers, packages), "\n")
			if !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") || strings.Contains(got, "\n") {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLayersBlockIsChecked(t *testing.T) {
	block := func(lines string) string { return "\n" + layersOpening + "\n" + lines + "\n" + layersClosing + "\n" }
	for _, text := range []string{"", "\n```\ncore pure decides\n```\n", block("core sharp decides"), block("core pure a\ncore pure b"), block("core")} {
		if layers, err := parseLayers(text); err == nil {
			t.Errorf("%q gives %v", text, layers)
		}
	}
}
