package pgshoal

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/config"
)

// TestConfigurationIsDocumented wants every key of the file in docs/configuration.md, marked live
// when it is, and no key there that is not one.
func TestConfigurationIsDocumented(t *testing.T) {
	text, err := os.ReadFile("docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cell, _, isRow := strings.Cut(strings.TrimPrefix(line, "| `"), " | ")
		if !isRow || !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, key := range regexp.MustCompile(`[a-z_]+(\[\])?(\.[a-z_]+(\[\])?)+`).FindAllString(cell, -1) {
			documented[key] = strings.Contains(cell, "**live**")
		}
	}
	for key, live := range configKeys(reflect.TypeFor[config.Config](), "", false) {
		marked, known := documented[key]
		switch {
		case !known:
			t.Errorf("docs/configuration.md does not have %s", key)
		case marked != live:
			t.Errorf("docs/configuration.md has %s as live: %v, the code says %v", key, marked, live)
		}
		delete(documented, key)
	}
	for key := range documented {
		t.Errorf("docs/configuration.md has %s, which is no key", key)
	}
}

func configKeys(t reflect.Type, prefix string, live bool) map[string]bool {
	keys := map[string]bool{}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name == "" {
			continue
		}
		key, isLive := prefix+name, live || field.Tag.Get("reload") == "live"
		inner, prefixOfInner := field.Type, key+"."
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
			keys[key] = isLive
			inner, prefixOfInner = inner.Elem(), key+"[]."
		}
		if inner.Kind() != reflect.Struct {
			keys[key] = isLive
			continue
		}
		maps.Copy(keys, configKeys(inner, prefixOfInner, isLive))
	}
	return keys
}

// TestLinks follows the relative links of all documents.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(filepath.ToSlash(path)) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), match[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", path, match[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
