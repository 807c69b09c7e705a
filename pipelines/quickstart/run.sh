#!/usr/bin/env bash
# The quickstart from data to checked results, on both engines. Starts from an empty log each time, so that typed twice it gives the same.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
project=$PWD
cd "${project%/pipelines/quickstart}"
here=pipelines/quickstart
flowql=.venv/bin/flowql
python=.venv/bin/python
data=$here/.flowql/data

say() { printf '\n== %s\n' "$*"; }

say "data: every flight that left New York City in 2013, and the weather"
"$python" $here/data.py

for target in default spark; do
  if [ -d $here/.flowql/$target ]; then
    say "start again: stop the instance of target $target and delete its log"
    "$flowql" stop -p $here -t $target
    rm -rf $here/.flowql/$target
  fi
done

say "import: the files become topics of the embedded log"
import() { # import TOPIC KEY TIME
  "$flowql" topic import "$1" "$data/$1.jsonl" -p $here --key "$2" --timestamp "$3" --partitions 2
}
import airlines CARRIER LOADED_AT
import planes TAILNUM LOADED_AT
import weather STATION_HOUR TIME_HOUR
import flights CARRIER SCHED_DEP_TIME

say "import: Spark gets a copy of the log"
cp -R $here/.flowql/default $here/.flowql/spark

say "run: eight queries on the runtime, until they have read all records (15 to 30 s)"
"$flowql" run -p $here --until-caught-up

say "run: the same queries on Spark, as batches over all records (about 30 s)"
"$flowql" run -p $here -t spark --bounded

say "check: every result of both engines against one DuckDB computation over the same files"
"$python" $here/oracle.py --flowql "$flowql" --targets default spark

say "check: runtime against Spark, tables by their final rows, streams record by record"
"$flowql" verify -p $here --held --targets default,spark

show() { # show TITLE SQL
  printf '\n%s\n' "$1"
  "$flowql" query -p $here "$2"
}

say "some of the answers"
show "The worst hours of a carrier (at least 10 flights):" \
  "SELECT CARRIER, strftime(make_timestamp(WINDOWSTART * 1000), '%d %b %H:%M') AS HOUR_UTC, FLIGHTS,
          round(AVG_DELAY, 1) AS AVG_DELAY, WORST_DELAY
   FROM DELAYS_BY_CARRIER WHERE FLIGHTS >= 10
   ORDER BY DELAYS_BY_CARRIER.AVG_DELAY DESC, CARRIER, WINDOWSTART LIMIT 10"
show "The busiest hours of an airport:" \
  "SELECT ORIGIN, strftime(make_timestamp(WINDOWSTART * 1000), '%d %b %H:%M') AS FROM_UTC, SCHEDULED, CANCELLED, WORST_DELAY
   FROM DEPARTURES_BY_AIRPORT ORDER BY SCHEDULED DESC, ORIGIN, WINDOWSTART LIMIT 10"
show "The longest disruptions:" \
  "SELECT ORIGIN, strftime(make_timestamp(WINDOWSTART * 1000), '%d %b %H:%M') AS FROM_UTC,
          (WINDOWEND - WINDOWSTART) // 60000 AS MINUTES, FLIGHTS, CANCELLED
   FROM DISRUPTIONS_BY_AIRPORT ORDER BY MINUTES DESC, ORIGIN, WINDOWSTART LIMIT 10"
show "Flights by the maker of the plane:" \
  "SELECT MANUFACTURER, FLIGHTS, SEATS, round(AVG_DELAY, 1) AS AVG_DELAY
   FROM FLIGHTS_BY_MANUFACTURER ORDER BY FLIGHTS DESC, MANUFACTURER LIMIT 10"
show "The days the weather made worst:" \
  "SELECT ORIGIN, strftime(make_timestamp(WINDOWSTART * 1000), '%d %b') AS DAY_UTC, FLIGHTS, WINDY, WET,
          round(AVG_DELAY, 1) AS AVG_DELAY
   FROM WEATHER_IMPACT ORDER BY WEATHER_IMPACT.AVG_DELAY DESC, ORIGIN, WINDOWSTART LIMIT 10"

cat <<END

== what to type next
  $flowql explain -p $here     the plan of every query
  $flowql deploy -p $here      keep the queries running in the background
  $flowql status -p $here      what runs, how far it has read
  $flowql query -p $here "SELECT ORIGIN, SUM(CANCELLED) AS N FROM DISRUPTIONS_BY_AIRPORT GROUP BY ORIGIN"
  $flowql stop -p $here        stop them
  $flowql explain -p $here -t spark                  how each step runs on Spark
  $flowql run -p $here -t spark                      keep the queries running on Spark, until Ctrl-C
  $flowql verify -p $here --targets default,spark    both engines again, in fresh directories
END
