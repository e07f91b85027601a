package wal

import (
	"errors"
	"os"
	"testing"
)

// TestRemovedDirectoryFailsTheLog: open files go on working when their directory is gone, so only a look at the
// directory itself tells that what is written ends with the process.
func TestRemovedDirectoryFailsTheLog(t *testing.T) {
	if !alone(t, "") { // closing leaves a Badger behind that tries for ever to write its table
		return
	}
	for name, remove := range map[string]func(dir string) error{
		"deleted": func(dir string) (err error) {
			for range 100 { // the keeper may make a file meanwhile
				if err = os.RemoveAll(dir); err == nil {
					break
				}
			}
			return err
		},
		"moved": func(dir string) error { return os.Rename(dir, dir+".old") },
		"replaced": func(dir string) error {
			// Made whole beside it: the keeper, which goes by names, may make a file in the place meanwhile.
			if err := os.CopyFS(dir+".new", os.DirFS(dir)); err != nil {
				return err
			}
			if err := os.Rename(dir, dir+".old"); err != nil {
				return err
			}
			return os.Rename(dir+".new", dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir() + "/log"
			l := mustOpen(t, dir, tiny())
			fillLog(t, l, 10, 100)
			// Badger ends the process when the directory goes while a segment is being made in it.
			eventually(t, "the next segment is made", func() bool { return len(l.spare) == 1 })
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the log takes no more", func() bool {
				_, err := l.Append(t.Context(), []byte("x"), nil, false)
				if err != nil && !errors.Is(err, ErrRemoved) {
					t.Fatalf("Append = %v, want ErrRemoved", err)
				}
				return err != nil
			})
			l.Close() // has nothing to close into
		})
	}
}
