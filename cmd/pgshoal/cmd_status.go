package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/localcluster"
)

func newStatusCommand(env *environment) *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the parts of the cluster on this machine and how they are",
		Long: "Show the parts of the cluster on this machine and how they are.\n" +
			"The exit code is 0 when everything is well, else 1.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := clusterDir(dir)
			if err != nil {
				return err
			}
			s, err := localcluster.ReadStatus(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(env.stdout)
				out.SetEscapeHTML(false)
				out.SetIndent("", "  ")
				err = out.Encode(s)
			} else {
				err = s.Print(env.stdout)
			}
			if err == nil && s.Health != localcluster.Healthy {
				err = silentError{} // the problems are part of the status
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the cluster's directory ("+defaultDirText()+")")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON for programs")
	return cmd
}
