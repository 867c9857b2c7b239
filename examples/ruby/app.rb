#!/usr/bin/env ruby
# frozen_string_literal: true

# The app with pg. Its reaction is the database's: ../trigger.
#
#   app.rb create NAME           one call
#   app.rb launch NAME AMOUNT    a batch: site and charge, or neither
#   app.rb show NAME             where it stands

require "json"
require "pg"
require "securerandom"

def call(db, leaf, key, path, body, batch: nil, run_when: "ready")
  insert = "INSERT INTO leafhopper.outbox (leaf, key, path, body, batch_id, run_when)
            VALUES ($1, $2, $3, $4, $5, $6) RETURNING id"
  db.exec_params(insert, [leaf, key, path, body.to_json, batch, run_when]).getvalue(0, 0)
end

# The site, the call that makes it, and what the account pays for it: all of it, or nothing.
def new_site(db, name, batch: nil)
  insert = "INSERT INTO site (name, batch_id) VALUES ($1, $2) RETURNING id"
  site = db.exec_params(insert, [name, batch]).getvalue(0, 0)
  call_id = call(db, "hosting", "site:#{site}", "/sites", { name: }, batch:)
  db.exec_params("UPDATE site SET call_id = $1 WHERE id = $2", [call_id, site])
  # Without credit this fails, and no call is made.
  db.exec("UPDATE account SET credit = credit - 1 WHERE id = 1")
  site
end

def create(db, name)
  site = db.transaction { new_site(db, name) }
  puts "site #{site} is requested"
end

def launch(db, name, amount)
  batch = SecureRandom.uuid
  site = db.transaction do
    site = new_site(db, name, batch:)
    call(db, "pay", "site:#{site}:charge", "/charges", { amount: Integer(amount) }, batch:)
    call(db, "mail", "site:#{site}:welcome", "/messages", { say: "welcome" }, batch:, run_when: "batch_succeeded")
    call(db, "mail", "site:#{site}:sorry", "/messages", { say: "sorry" }, batch:, run_when: "batch_failed")
    site
  end
  puts "site #{site} is requested, in batch #{batch}"
end

# What failed before it had an effect has no result, and the trigger does not see it; site_outcome does.
def show(db, name)
  select = "SELECT coalesce(o.status, s.status)
              FROM site s LEFT JOIN site_outcome o ON o.site_id = s.id WHERE s.name = $1"
  db.exec_params(select, [name]).each_row { |(status)| puts "#{name} is #{status}" }
end

begin
  command, *arguments = ARGV
  abort "app.rb create NAME | launch NAME AMOUNT | show NAME" unless %w[create launch show].include?(command)
  send(command, PG.connect(ENV.fetch("DATABASE_URL")), *arguments)
rescue PG::CheckViolation => e
  abort "nothing is requested: #{e.message}"
end
