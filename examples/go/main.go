// The app with lib/pq; follow reacts by LISTEN.
//
//	app create NAME           one call
//	app launch NAME AMOUNT    a batch: site and charge, or neither
//	app follow                marks sites as live or failed, until Ctrl-C
package main

import (
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/lib/pq"
)

const outbox = `
	INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id, run_when)
	VALUES ($1, $2, $3, $4, $5, $6) RETURNING id`

type call struct {
	leaf, key, path string
	body            any
	batch           *string // nil: none
	runWhen         string
}

func (c call) insert(tx *sql.Tx) (id int64, err error) {
	body, err := json.Marshal(c.body)
	if err != nil {
		return 0, err
	}
	row := tx.QueryRow(outbox, c.leaf, c.key, c.path, body, c.batch, c.runWhen)
	return id, row.Scan(&id)
}

// newSite makes the site, the call for it, and what the account pays for it: all of it, or nothing.
func newSite(tx *sql.Tx, name string, batch *string) (site int64, err error) {
	insert := "INSERT INTO site (name, batch_id) VALUES ($1, $2) RETURNING id"
	if err := tx.QueryRow(insert, name, batch).Scan(&site); err != nil {
		return 0, err
	}
	key := fmt.Sprintf("site:%d", site)
	id, err := call{"hosting", key, "/sites", map[string]any{"name": name}, batch, "ready"}.insert(tx)
	if err != nil {
		return 0, err
	}
	if _, err := tx.Exec("UPDATE site SET call_id = $1 WHERE id = $2", id, site); err != nil {
		return 0, err
	}
	// Without credit this fails, and no call is made.
	_, err = tx.Exec("UPDATE account SET credit = credit - 1 WHERE id = 1")
	return site, err
}

func inTransaction(db *sql.DB, work func(*sql.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() // Nothing, once it is committed.
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func create(db *sql.DB, name string) error {
	var site int64
	err := inTransaction(db, func(tx *sql.Tx) (err error) {
		site, err = newSite(tx, name, nil)
		return err
	})
	if err == nil {
		fmt.Printf("site %d is requested\n", site)
	}
	return err
}

func launch(db *sql.DB, name string, amount int) error {
	batch := newUUID()
	var site int64
	err := inTransaction(db, func(tx *sql.Tx) (err error) {
		if site, err = newSite(tx, name, &batch); err != nil {
			return err
		}
		key := fmt.Sprintf("site:%d:", site)
		for _, c := range []call{
			{"pay", key + "charge", "/charges", map[string]any{"amount": amount}, &batch, "ready"},
			{"mail", key + "welcome", "/messages", map[string]any{"say": "welcome"}, &batch, "batch_succeeded"},
			{"mail", key + "sorry", "/messages", map[string]any{"say": "sorry"}, &batch, "batch_failed"},
		} {
			if _, err := c.insert(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		fmt.Printf("site %d is requested, in batch %s\n", site, batch)
	}
	return err
}

func follow(db *sql.DB, url string) error {
	listener := pq.NewListener(url, time.Second, time.Minute, nil)
	for _, channel := range []string{"leafhopper_result", "leafhopper_call"} {
		if err := listener.Listen(channel); err != nil {
			return err
		}
	}
	for {
		// First, for what happened while nobody listened.
		if err := look(db); err != nil {
			return err
		}
		// A notification is a hint: it says that there is something, and may be lost with a connection.
		select {
		case <-listener.Notify:
		case <-time.After(30 * time.Second):
		}
	}
}

func look(db *sql.DB) error {
	rows, err := db.Query(`
		UPDATE site SET status = o.status, remote_id = o.remote_id
		  FROM site_outcome o WHERE o.site_id = site.id AND o.status IS NOT NULL
		RETURNING site.name, site.status`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name, status string
		if err := rows.Scan(&name, &status); err != nil {
			return err
		}
		fmt.Printf("%s is %s\n", name, status)
	}
	return rows.Err()
}

func newUUID() string {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		panic(err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func run(args []string) error {
	url := os.Getenv("DATABASE_URL")
	db, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer db.Close()
	switch {
	case len(args) == 2 && args[0] == "create":
		return create(db, args[1])
	case len(args) == 3 && args[0] == "launch":
		amount, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return launch(db, args[1], amount)
	case len(args) == 1 && args[0] == "follow":
		return follow(db, url)
	}
	return errors.New("create NAME | launch NAME AMOUNT | follow")
}

func main() {
	log.SetFlags(0)
	err := run(os.Args[1:])
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code.Name() == "check_violation" {
		log.Fatalf("nothing is requested: %s", refused.Message)
	}
	if err != nil {
		log.Fatal(err)
	}
}
