package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/localcluster"
)

// apiOptions say which cluster's admin API a command talks to, and how it prints the answer.
type apiOptions struct {
	dir, http, tokenFile string
	json                 bool
}

func (o *apiOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dir, "dir", "", "`directory` of a local cluster (default as for pgshoal up)")
	cmd.Flags().StringVar(&o.http, "http", "", "`address` of the admin API, instead of --dir")
	cmd.Flags().StringVar(&o.tokenFile, "token-file", "", "`file` with the admin API's token, with --http")
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON for programs")
}

// apiClient talks to a controller.
type apiClient struct {
	address, token string
}

func (o *apiOptions) client() (*apiClient, error) {
	switch {
	case o.dir != "" && o.http != "":
		return nil, newUsageError("give either --dir or --http")
	case o.http == "" && o.tokenFile != "":
		return nil, newUsageError("--token-file goes with --http; a local cluster's directory has its own token")
	case o.http != "":
		c := &apiClient{address: strings.TrimPrefix(o.http, "http://")}
		if o.tokenFile == "" {
			return c, nil
		}
		data, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("token file: %w", err)
		}
		c.token = strings.TrimSpace(string(data))
		return c, nil
	}
	dir := o.dir
	if dir == "" {
		var err error
		if dir, err = localcluster.DefaultDir(); err != nil {
			return nil, err
		}
	}
	cfg, err := loadLocal(dir)
	if err != nil {
		return nil, err
	}
	token, err := cfg.Controller.ReadToken()
	if err != nil {
		return nil, err
	}
	return &apiClient{address: cfg.Controller.HTTP, token: token}, nil
}

// apiError is the admin API's {error, hint, sqlstate}.
type apiError struct {
	Message  string `json:"error"`
	Way      string `json:"hint"`
	SQLState string `json:"sqlstate"`
}

func (e *apiError) Error() string { return e.Message }

// Hint is the way out.
func (e *apiError) Hint() string { return e.Way }

// call sends one request and returns the raw answer, decoded into out as well unless that is nil.
func (c *apiClient) call(ctx context.Context, method, path string, query url.Values, in, out any) ([]byte, error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(data)
	}
	target := url.URL{Scheme: "http", Host: c.address, Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, newUsageError("%q is not the address of an admin API", c.address)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op
		}
		return nil, withHints(fmt.Errorf("the admin API at %s does not answer: %w", c.address, err),
			"Is the controller running? pgshoal status tells for a local cluster.")
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("answer of the admin API: %w", err)
	}
	if resp.StatusCode >= 300 {
		e := &apiError{}
		if json.Unmarshal(data, e) != nil || e.Message == "" {
			return nil, fmt.Errorf("the admin API at %s answered %s", c.address, resp.Status)
		}
		return nil, e
	}
	if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			return nil, fmt.Errorf("answer of the admin API: %w", err)
		}
	}
	return data, nil
}

// show prints the answer to a question: as JSON, or in the form that table writes.
func (o *apiOptions) show(ctx context.Context, env *environment, path string, query url.Values, out any, table func(io.Writer)) error {
	client, err := o.client()
	if err != nil {
		return err
	}
	data, err := client.call(ctx, http.MethodGet, path, query, nil, out)
	if err != nil {
		return err
	}
	if o.json {
		_, err = env.stdout.Write(data)
		return err
	}
	w := tabwriter.NewWriter(env.stdout, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// orDash shows that there is nothing, where an empty cell would look like a mistake.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
