package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/localcluster"
)

func newDownCommand(env *environment) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the cluster that runs on this machine; its data stays",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := clusterDir(dir)
			if err != nil {
				return err
			}
			err = localcluster.Down(cmd.Context(), dir)
			if errors.Is(err, localcluster.ErrNotRunning) {
				fmt.Fprintf(env.stdout, "nothing was running in %s\n", dir)
				return nil
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(env.stdout, "stopped the cluster in %s; pgshoal up starts it again\n", dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the cluster's directory ("+defaultDirText()+")")
	return cmd
}
