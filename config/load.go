package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Load reads and validates a file. What is wrong with its content comes back as Problems, all of
// them at once. Relative paths in the file are relative to the file.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	c, problems := parse(path, data)
	if len(problems) == 0 {
		c.resolvePaths(filepath.Dir(path))
		c.settle()
		problems = c.Validate()
	}
	if len(problems) > 0 {
		return nil, problems.sorted()
	}
	return c, nil
}

func parse(path string, data []byte) (*Config, Problems) {
	c := Default()
	c.file = path
	c.lines = map[string]int{}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) { // nothing but comments: all defaults
			return c, nil
		}
		return nil, Problems{syntaxProblem(path, err)}
	}
	var second yaml.Node
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, Problems{{File: path, Line: second.Line, Message: "a second YAML document; put everything in one"}}
	case !errors.Is(err, io.EOF):
		return nil, Problems{syntaxProblem(path, err)}
	}
	d := decoder{file: path, lines: c.lines}
	d.document(&doc, c)
	return c, d.problems
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func syntaxProblem(path string, err error) Problem {
	p := Problem{File: path, Message: err.Error()}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		p.Message = "not valid YAML: " + m[2]
	}
	return p
}

func (c *Config) resolvePaths(dir string) {
	for _, p := range []*string{
		&c.Etcd.TLS.CA, &c.Etcd.TLS.Cert, &c.Etcd.TLS.Key, &c.Etcd.PasswordFile,
		&c.Nodes.ServicePasswordFile, &c.Nodes.AdminPasswordFile, &c.Nodes.CA,
		&c.Router.TLS.Cert, &c.Router.TLS.Key, &c.Router.TLS.ClientCA,
		&c.Controller.TokenFile,
	} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// Save writes the file whole or not at all, readable by its owner only, for it may hold passwords.
func Save(path string, c *Config) error {
	data, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	defer os.Remove(tmp.Name()) // gone already after the rename
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("config: save: %w", err)
	}
	return nil
}
