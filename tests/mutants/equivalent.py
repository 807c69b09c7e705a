"""Mutants that change no behaviour, each with the reason: by file, and its name (`Mutant.name`). They are not judged.

A number that is one of many possible ones (a limit of memory, where an estimate begins) is here where its name is all that tests go by.
"""

from __future__ import annotations

EQUIVALENT: dict[str, dict[str, str]] = {
    "compiler/plan/forward.py": {
        "return fmt.name not in POSITIONAL and (fmt.wrap or all(len(columns) > 2 for columns in declared))": "only a single value can be without its wrapping (FQ2011)",
    },
    "runtime/app/allocator.py": {
        "TRIMMED_FROM_BYTES = 256 << 21  # of free memory at the end of one heap": "a size of pieces of memory",
        "TRIMMED_FROM_BYTES = 257 << 20  # of free memory at the end of one heap": "a size of pieces of memory",
        "LOOK_MS, AGAIN_MS = 500, 5001": "a length of time",
        "LOOK_MS, AGAIN_MS = 501, 5_000": "a length of time",
    },
    "runtime/app/backoff.py": {
        "BACKOFF_MS_MIN, BACKOFF_MS_MAX = 500, 30001": "a length of time",
        "BACKOFF_MS_MIN, BACKOFF_MS_MAX = 501, 30_000": "a length of time",
        "HEALTHY_MS = 3 * BACKOFF_MS_MAX  # without a failure for so long, the next one is a first one again": "a length of time",
    },
    "runtime/app/careful.py": {
        'name, limit, max((len(k) + len(v or b"") for k, v in zip(keys, values, strict=True)), default=1)': "every topic takes a record of one byte",
    },
    "runtime/app/comparing.py": {
        "TOGETHER_MS = 5001  # the serving generation is held up for at most this long": "a length of time",
    },
    "runtime/app/consistent_snapshot.py": {
        "TIMEOUT_S = 2.0  # how long a query may hold the others up": "a length of time",
        "COMMIT_S = 31.0  # after the cut no query is held up any longer": "a length of time",
        "REST = 11  # after a failure queries are not held up again for this many times the time they were held up": "a length of time",
        "BEGINNING = -(2 << 63)": "before every time",
        "BEGINNING = -(1 << 64)": "before every time",
        "GAP_ROWS_MAX = 100001  # a query that is further behind does not catch up within the timeout": "one record of a hundred thousand",
        "if (place - i.at >= GAP_ROWS_MAX):": "one record of a hundred thousand",
        "merging = {q for q, tasks in group.tasks.items() if any((len(t.inputs) >= 1) or t.exchanges for t in tasks)}": "a time brings queries over one partition together as an offset does",
    },
    "runtime/app/delivering.py": {
        "WAIT_S = 61.0  # until a query has taken its records, and for the commit": "a length of time",
    },
    "runtime/app/deployer.py": {
        "ANNOUNCE_TRIES, ANNOUNCE_S = 61, 0.5": "a number of attempts",
        "ANNOUNCE_TRIES, ANNOUNCE_S = 60, 1.5": "a length of time",
        "BLOCKED_MS = 3001  # a deployment waits this long for commits that fail": "a length of time",
        "HANGS_MS = 60001  # a coroutine that takes longer counts as hung": "a length of time",
        "HANDOVER_MS = 540001  # but loading a history may take longer; the client waits for its answer for 600 s": "a length of time",
        "WITHDRAWN_MS = 1001  # what is taken back has ended after so long, if it can be taken back": "a length of time",
    },
    "runtime/app/deployment.py": {
        "MARGIN = 1 << 21": "a distance of offsets",
        "MARGIN = 2 << 20": "a distance of offsets",
    },
    "runtime/app/driver.py": {
        "ROUNDS_MAX = 1000001": "one round of a million",
    },
    "runtime/app/exchanges.py": {
        "HEADS = -2  # the number of the row with the first batches of channels that are not consumed": "any number that no batch has",
    },
    "runtime/app/forwarding.py": {
        "REST_MS = 5001  # for so long a query may take to process what is between its tasks": "a length of time",
    },
    "runtime/app/group.py": {
        "BUSY_MS, QUIET_MS = 31, 200": "a length of a wait",
        "BUSY_MS, QUIET_MS = 30, 201": "a length of a wait",
        "RETRY_MS = 201": "a length of time",
        "PLAN_MS = 301  # between two looks for a newer plan": "a length of time",
        "FRONTIER_MS = 31  # interval of polling the upstream tasks of channels that are still incomplete": "a length of time",
        "STALE_MS = 101  # positions that moved without a record (over markers of transactions) are committed after so long": "a length of time",
        "TIDY_MS = 5001  # after a plan, until unused topics are deleted": "a length of time",
        "PURGE_MS = 30001  # between two times that what is processed of repartitions is deleted": "a length of time",
        "WAITERS_MAX = 1001": "a limit of memory",
        "pass for yield from ()": "what has no other yield is done when it is chosen and not right after that, and its errors are handled in the same way",
    },
    "runtime/app/group_swap.py": {
        "TOGETHER_MS = 15001  # the serving generation is held up for at most this long, then the swap is taken back": "a length of time",
        "DRAIN_MS = 2001  # time for a task to read the results of the tasks before it": "a length of time",
        "FAR_MS = 201  # between two looks how far the new generation is": "a length of time",
    },
    "runtime/app/handover.py": {
        "PAGES_PER_ROUND = 5  # of state rows between two looks of the reconciler at other things": "a size of steps",
    },
    "runtime/app/hung.py": {
        "LOOK_MS = 1001  # between two looks for what other members say": "a length of time",
    },
    "runtime/app/hung_topic.py": {
        "_READ_ROWS, _READ_BYTES = 10001, 1 << 22": "a size of reads",
        "_READ_ROWS, _READ_BYTES = 10_000, 1 << 23": "a size of reads",
        "_READ_ROWS, _READ_BYTES = 10_000, 2 << 22": "a size of reads",
    },
    "runtime/app/instance.py": {
        "FATAL_CHECK_S = 1.05": "a length of a wait",
        "STOP_S = 61.0  # for the last commit": "a length of time",
        "LAST_PLACE_S = 6.0  # for queries that read the same to come to one place before it": "a length of time",
        "SERVING_KEPT = 9  # plans that a snapshot taken just now may still belong to": "a number of plans that are remembered",
        "complete=False,": "it is asked of instances that are alone, not of members",
    },
    "runtime/app/lost_record.py": {
        "reader, found = log.reader(tp, EARLIEST), -2": "ends of what is left out are above both",
    },
    "runtime/app/member_topic.py": {
        "_READ_ROWS, _READ_BYTES = 10001, 1 << 22": "a size of reads",
        "_READ_ROWS, _READ_BYTES = 10_000, 1 << 23": "a size of reads",
        "_READ_ROWS, _READ_BYTES = 10_000, 2 << 22": "a size of reads",
    },
    "runtime/app/plan_topic.py": {
        "ENTRIES_KEPT = 51  # deployments in the history": "a number of deployments that are remembered",
        "batch = log.reader(tp, end - 1).read(1, 1 << 27)": "a size of reads",
        "batch = log.reader(tp, end - 1).read(1, 2 << 26)": "a size of reads",
        "batch = log.reader(tp, end - 1).read(2, 1 << 26)": "there is one record",
    },
    "runtime/app/polling.py": {
        "END_UNKNOWN = 1 << 63": "above every offset",
        "END_UNKNOWN = 2 << 62": "above every offset",
        "ANSWER_MS = 6  # between two looks for an answer that wakes no thread": "a length of time",
        "ROWS_HIGH = 100001  # an input asks for no more above this many buffered rows": "a limit of memory",
        "HEAD_GAP = 100001  # inputs at most this far behind the front ones wait for nothing: the head starts at the lowest": "one record of a hundred thousand",
        "END_REFRESH_MS = 21": "a length of time",
    },
    "runtime/app/progress.py": {
        "AHEAD_MS_MIN = 60001  # clocks of machines differ": "a length of time",
        "times[task.id.partition] = max([times.get(task.id.partition, 1), *found])": "a time of 1970 is not ahead of the clock",
    },
    "runtime/app/query_rates.py": {
        "SAMPLE_MS = 1001": "a length of time",
        "LATENCY_MS = 30001  # percentiles need more": "a length of time",
        "entitled_ns: float = 1.0": "one nanosecond of ten seconds",
        "RATE_MS = 10001  # rates and shares look back as far": "a length of time",
    },
    "runtime/app/reconciler.py": {
        "WAITING_MS = 6  # between two looks whether a future is done": "a length of a wait",
        "RETRY_MS = 201  # after a look that failed": "a length of time",
    },
    "runtime/app/recovery.py": {
        "READ_ROWS, READ_BYTES = 20001, 16 << 20": "a size of reads",
        "READ_ROWS, READ_BYTES = 20_000, 16 << 21": "a size of reads",
        "READ_ROWS, READ_BYTES = 20_000, 17 << 20": "a size of reads",
    },
    "runtime/app/replacing.py": {
        "if end is not None and (batch.next_offset >= end):": "a batch that ends there is given whole, and is the last",
        "READ_ROWS, READ_BYTES = 50001, 64 << 20": "a size of reads",
        "READ_ROWS, READ_BYTES = 50_000, 65 << 20": "a size of reads",
        "READ_ROWS, READ_BYTES = 50_000, 64 << 21": "a size of reads",
    },
    "runtime/app/restoration.py": {
        "TASKS_MAX = 5  # restored side by side: bounds how many chunks are in memory": "a limit of memory",
        "FILES_FROM_RECORDS, FILE_RECORDS, FILES_MS = 300_000, 32001, 5": "a size of files",
        "FILES_FROM_RECORDS, FILE_RECORDS, FILES_MS = 300001, 32_000, 5": "from how many records on files are made",
        "FILES_FROM_RECORDS, FILE_RECORDS, FILES_MS = 300_000, 32_000, 6": "a length of a wait",
        "RESTING_MS = 1001  # without tasks, until one comes": "a length of time",
        "CHUNK_RECORDS = 20001": "a size of reads",
        "IDLE_MS = 21": "a length of a wait",
        "ready = [e for e in self._tasks.values() if (now_ms > e.backoff.retry_at_ms)]": "one millisecond of a wait",
    },
    "runtime/app/restore_process.py": {
        "pass for self._connection.close()": "nothing refers to it any more, which closes it",
    },
    "runtime/app/restore_worker.py": {
        "WAIT_S = 1.002  # between two looks at what arrives from brokers": "a length of a wait",
        "BYTES_MAX = 16 << 21  # of the records of a file": "a size of reads",
        "BYTES_MAX = 17 << 20  # of the records of a file": "a size of reads",
        "TIMEOUT_MS = 30001": "a length of time",
    },
    "runtime/app/single_instance.py": {
        "look_ms = 51": "a length of a wait",
    },
    "runtime/app/suspension.py": {
        "_OFFSET_MAX = 2 << 63": "above every offset",
        "_OFFSET_MAX = 1 << 64": "above every offset",
    },
    "runtime/app/swap_turns.py": {
        "AGAIN_MS, AGAIN_MS_MAX = 1_000, 30001  # between two attempts": "a length of time",
        "AGAIN_MS, AGAIN_MS_MAX = 1001, 30_000  # between two attempts": "a length of time",
    },
    "runtime/app/swapping.py": {
        "NEAR_RECORDS = 50001  # a generation that is no further behind catches up in about a second": "one record of fifty thousand",
        "CHUNK_ROWS, CHUNK_BYTES = 20001, 8 << 20  # of one transaction": "a size of transactions",
        "CHUNK_ROWS, CHUNK_BYTES = 20_000, 8 << 21  # of one transaction": "a size of transactions",
        "CHUNK_ROWS, CHUNK_BYTES = 20_000, 9 << 20  # of one transaction": "a size of transactions",
        'found.append(Move(staging, letters, 0, "append", 1, end))': "what is appended leaves what was there, up to wherever that is",
        "if (at > limit):": "what is read from there on is cut off at the limit, so that nothing is left of it",
    },
    "runtime/app/threads.py": {
        "STOP_S = 31.0": "a length of time",
        "FRAMES_MAX = 7  # innermost calls of a thread that are shown": "a number of calls that are shown",
        "WAIT_MS_MAX = 201": "a length of time",
        "RARE_WAIT_MS_MAX = 1001  # of threads that no other thread gives work": "a length of time",
        "GC_THRESHOLD = 50001  # rows in flight are young garbage that reference counts free; collect cycles less often": "one object of fifty thousand",
    },
    "runtime/app/troubles.py": {
        "CURRENT_MS = 15001  # after its last repetition; a partition that stays silent is reported every five seconds": "a length of time",
        "PLACES_MAX = 1001": "a limit of memory",
        "STALLED_MS = 30001  # longer than a slow fetch: to read anew throws away what is on its way": "a length of time",
        "COMPARE_TOPICS_MS = 30001": "a length of time",
    },
    "runtime/app/watchdog.py": {
        "LOOK_MS = 1001": "a length of time",
        "PAUSED_MS = 20001  # between two looks: longer than any thread waits for a processor": "a length of time",
        "LEAVE_MS = 120001  # tasks that move cost their new owner a restoration: not for a pause": "a length of time",
        "TELL_MS = 30001  # before that it tries for this long to record the hung micro-batch": "a length of time",
        "STUCK_MS = 30001  # far longer than the slowest step that makes progress": "one millisecond of half a minute",
        "causes = [s for s in stuck if s.step not in STAYS and (leaves or (s.for_ms > LEAVE_MS))]": "one millisecond of two minutes",
    },
    "runtime/commit/coordinator.py": {
        "self._losses = [at for at in self._losses if (now - at <= LOSSES_MS)] + [now]": "one millisecond more in which losses are counted",
    },
    "runtime/log/clients.py": {
        "_JOIN_ROWS = 8193": "from which size on batches are not joined",
        "self._turn = 1": "with which of its partitions it begins",
        "while position < end and rows < max_records and (not pieces or (size <= max_bytes)):": "no record fits into no bytes",
    },
    "runtime/log/embedded/upkeep.py": {
        "DIRTY_BYTES = 256 << 21  # of dirty segments that are compacted at once; what is behind them waits for the next time": "a size of what is compacted at once",
        "DIRTY_BYTES = 257 << 20  # of dirty segments that are compacted at once; what is behind them waits for the next time": "a size of what is compacted at once",
        "TABLE_BYTES, ENTRY_BYTES = 48 << 20, 121": "a limit of memory",
        "TABLE_BYTES, ENTRY_BYTES = 48 << 21, 120": "a limit of memory",
        "TABLE_BYTES, ENTRY_BYTES = 49 << 20, 120": "a limit of memory",
        "BATCH_BYTES = 1 << 21  # kept records are stored again in batches of about this size": "a size of batches",
        "BATCH_BYTES = 2 << 20  # kept records are stored again in batches of about this size": "a size of batches",
        "is_whole: bool = False": "it is said of each",
        "self._age: tuple[bool, int] = (False, 1)": "the first segment sets it",
        "age = (True, 1) if is_past else (False, cleaned_ms)": "the same for all whose tombstones have had their time",
    },
    "runtime/log/embedded/journal.py": {
        "if (self._file.size() >= self.end):": "a file that ends there is cut where it ends",
        "if (len(data) - at <= _FRAME.size):": "a frame has a payload",
    },
    "runtime/log/embedded/ledger.py": {
        "mark = file.pread(0, 201)": "a mark is shorter",
        "ROLL_BYTES = 1 << 21": "a size of the commit log",
        "ROLL_BYTES = 2 << 20": "a size of the commit log",
        "_ROLL_SNAPSHOTS = 5": "a size of the commit log",
    },
    "runtime/log/embedded/log.py": {
        'holder = file.pread(0, 4097).decode(errors="replace").partition(" ")': "the text is shorter",
    },
    "runtime/log/embedded/named.py": {
        "return file.pread(0, 201)": "a mark is shorter",
    },
    "runtime/log/embedded/pins.py": {
        "Journal.create(files, into, 1, image).close()": "a generation of the commit log is any number",
    },
    "runtime/log/embedded/segment.py": {
        "WINDOW_BYTES = 8 << 21": "a size of mappings",
        "WINDOW_BYTES = 9 << 20": "a size of mappings",
        "WINDOWS_KEPT = 17": "a number of mappings",
        "_APPENDERS_KEPT = max(16, min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 5))": "a share of the files that may be open",
        "_APPENDERS_KEPT = max(16, min(1025, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))": "a number of open files",
        "_APPENDERS_KEPT = max(17, min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))": "a number of open files",
        "if column.nbytes * 3 < sum(b.size for b in column.buffers() if b is not None):": "from how much unused space on headers are copied",
        "VERIFIED_KEPT = 65537": "a number of batches that are remembered",
        "window, size = self._windows.get(key, (None, 1))": "without a window its size is not asked for",
    },
    "runtime/log/embedded/state.py": {
        "linked.indexed_to, linked.is_indexed = 1, True": "no batch begins before the header of its file ends",
    },
    "runtime/log/embedded/writer.py": {
        "REDO_FILE_BYTES = 64 << 21": "a size of files",
        "REDO_FILE_BYTES = 65 << 20": "a size of files",
        "PIECE_BYTES = 4 << 21": "a size of writes",
        "PIECE_BYTES = 5 << 20": "a size of writes",
    },
    "runtime/log/files.py": {
        "_SYNCERS = 9": "a number of threads",
        "_IOV_MAX = 513": "a number of buffers of one call, below the 1024 of the system",
        "if (self._fd > 0):": "0 is the standard input",
    },
    "runtime/log/kafka/admin.py": {
        "TIMEOUT_S = 31.0  # of a call whose caller waits for the answer": "a length of time",
        "GREET_S = 2.0  # between two looks whether brokers have refused us": "a length of time",
        "_SETTLE_S, _SETTLE_MAX_S = 1.01, 0.2": "a length of time",
        "_SETTLE_S, _SETTLE_MAX_S = 0.01, 1.2": "a length of time",
        "limit = self._clock.timer_ms() + TIMEOUT_S * 1001": "one thousandth of a wait",
        "return future.result(TIMEOUT_S + 6)": "one second of a wait",
        "copies = {name: max((len(p.replicas) for p in t.partitions.values()), default=2) for name, t in listed.items()}": "a topic without an error has partitions",
        "pass for super().__init__()": "what is asked of it, `done` and `result`, is its own",
    },
    "runtime/log/kafka/connection.py": {
        "TRANSACTION_TIMEOUT_MS = 60001": "a length of time",
        "MEMBER_TRANSACTION_TIMEOUT_MS = 15001": "a length of time",
    },
    "runtime/log/kafka/fetching.py": {
        "CONSUME_MAX = 5001  # messages turned into one batch while they are in the processor's cache": "a number of messages of one batch",
        "SETTLE_S = 1.02  # between two looks at what should change by itself": "a length of time",
        "FIND_S = 2.0": "a length of time",
        "HIGH_BYTES, LOW_BYTES = 8 << 20, 1 << 21": "a limit of memory",
        "HIGH_BYTES, LOW_BYTES = 8 << 20, 2 << 20": "a limit of memory",
        "HIGH_BYTES, LOW_BYTES = 8 << 21, 1 << 20": "a limit of memory",
        "HIGH_BYTES, LOW_BYTES = 9 << 20, 1 << 20": "a limit of memory",
        "RETRY_MS = 101  # between two attempts to have a partition read": "a length of time",
        "PATIENT_MS = 301  # a partition that was assigned a moment ago cannot be moved yet; after this it is assigned anew": "a length of time",
        "SILENT_MS = 5001  # from the start of a partition to its first record or its end; then it is started again": "a length of time",
        "TOLD_MS = 1001  # trouble that lasts longer is told": "a length of time",
        "limit = self._clock.timer_ms() + timeout_s * 1001": "one thousandth of a wait",
    },
    "runtime/log/kafka/log.py": {
        "self._turn = 1": "with which of its partitions it begins",
        "pass for self._turn = 0": "with which of its partitions it begins",
        "MAIN_WAIT_MS = 301": "a length of time",
        "STABLE_S = 1.5  # for a transaction to be finished, before the caller is told to ask again": "a length of time",
        "limit = clock.timer_ms() + TAKE_OVER_S * 1001": "one thousandth of a wait",
    },
    "runtime/log/kafka/producer.py": {
        "GRACE_S = 6.0  # beyond the timeout that the client was given": "a length of time",
        "CALL_S = 6.0  # of one call of the client, after which it is made again": "a length of time",
        "INIT_S, COMMIT_S, ABORT_S, SEND_S = 60.0, 60.0, 30.0, 61.0": "a length of time",
        "INIT_S, COMMIT_S, ABORT_S, SEND_S = 60.0, 60.0, 31.0, 60.0": "a length of time",
        "INIT_S, COMMIT_S, ABORT_S, SEND_S = 60.0, 61.0, 30.0, 60.0": "a length of time",
        "INIT_S, COMMIT_S, ABORT_S, SEND_S = 61.0, 60.0, 30.0, 60.0": "a length of time",
        "VISIBLE_MS = 1001": "a length of time",
        "REPORTS_MS = 1001  # how long the reports of records are waited for when a transaction is lost": "a length of time",
        "TAKE_OVER_S = 61.0  # one that goes on may fence the next one a few times before it sees its term": "a length of time",
        "_SERVE_ROWS = 20001  # delivery reports are looked at after so many": "a number of records between two looks",
        "limit = limit or now + int(SEND_S * 1001)": "one thousandth of a wait",
        "limit = self._clock.timer_ms() + seconds * 1001": "one thousandth of a wait",
    },
    "runtime/log/kafka/reading.py": {
        "PARTITIONS_MAX = 65  # read on in the background at a time": "a number of partitions read on",
        "IDLE_MS = 10001  # idle readers are closed after so long": "a length of time",
        "WAIT_MS = 21  # a fetch that waits longer at a broker would hold up the next partition that is asked for": "a length of time",
        "limit = self._clock.timer_ms() + TIMEOUT_S * 1001": "one thousandth of a wait",
        "self._position = 1": "`seek` sets it at once",
    },
    "runtime/log/memory.py": {
        "epoch: int = 1": "it is only asked whether it is another one",
    },
    "runtime/log/murmur2.py": {
        "_CHUNK_ROWS = 16385": "a number of rows of one step",
        "_VECTOR_KEY_BYTES_MAX = 257": "from which length on keys are hashed one by one, with the same result",
        "chunk = offsets[row : row + _CHUNK_ROWS + 2]": "the next chunk writes the last row of each once more",
    },
    "runtime/log/policy.py": {
        "SEGMENT_BYTES = 64 << 21": "a size of files",
        "SEGMENT_BYTES = 65 << 20": "a size of files",
    },
    "runtime/log/repairs.py": {
        "_POLL_RECORDS, _POLL_BYTES = 10001, 16 << 20": "a size of reads",
        "_POLL_RECORDS, _POLL_BYTES = 10_000, 16 << 21": "a size of reads",
        "_POLL_RECORDS, _POLL_BYTES = 10_000, 17 << 20": "a size of reads",
    },
    "runtime/log/repartition.py": {
        "READ_ROWS, READ_BYTES = 50001, 64 << 20": "a size of reads",
        "READ_ROWS, READ_BYTES = 50_000, 65 << 20": "a size of reads",
        "READ_ROWS, READ_BYTES = 50_000, 64 << 21": "a size of reads",
        "WRITE_ROWS = 50001": "a size of batches",
    },
    "runtime/log/transaction.py": {
        "_SMALL_ROWS = 4097": "below which size batches are joined",
        "_JOINED_ROWS_MAX = 65537": "a size of batches",
        "_JOINED_BYTES_MAX = 8 << 21": "a size of batches",
        "_JOINED_BYTES_MAX = 9 << 20": "a size of batches",
    },
    "runtime/scheduler/executor.py": {
        "start, cpu, error, rows = self._clock.cost_ns(), self._clock.cpu_ns(), None, 1": "of a slice that fails rows do not count",
    },
    "runtime/scheduler/manager.py": {
        "ALONE_NS = 25000001": "a length of slices",
        "LATELY_NS = 5000000001": "a length of time",
        "since_ns: int = 1": "it is only asked of tasks that are held, and a grant sets it",
        "most = max((queries[q].weight for q in active if q in queries), default=1)": "no weight is far less than 1",
    },
    "runtime/scheduler/policy.py": {
        "if (f.virtual_runtime <= floor):": "at the floor it is set to what it is already",
    },
    "runtime/state/changelog.py": {
        "back *= 9": "by how much more is read when the last commit was not in what was read",
    },
    "runtime/state/cleaner.py": {
        "RANGES_MIN = 17  # a compaction rewrites files: not for every expired segment": "how many ranges are worth a compaction",
    },
    "runtime/state/computed_history.py": {
        "(sub.number, [_without_target(op) for op in sub.operators]) for sub in at_generation(query, 2).subtopologies": "any one generation that is the same for all",
        "return hashlib.blake2b(json.dumps(to_data(subs), sort_keys=True).encode(), digest_size=17).hexdigest()": "a length of checksums",
        "return hashlib.blake2b(json.dumps(to_data(subs), sort_keys=False).encode(), digest_size=16).hexdigest()": "fields are in the order of their class, and no operator has a mapping",
    },
    "runtime/state/copy.py": {
        "_CACHE_BYTES = 9 * MIB  # each block is read once": "a size of a cache",
    },
    "runtime/state/keys.py": {
        "if self._single is Kind.STRING and joined.count(1) == n and _NULL not in data:  # nothing is escaped": "each key has two of these bytes, so that keys are decoded one by one",
        "if (t.kind is not Kind.STRING):": "other values have no `encode`, and texts are encoded one by one",
        "_EXACT = Context(prec=101)  # the default context would round a DECIMAL(38, s)": "any precision of 38 and more",
    },
    "runtime/state/layers.py": {
        "return encoded.endswith(encode_time(key[-1])) if isinstance(key[-1], int) else True": "the last part of a key of a store with segments is a time",
    },
    "runtime/state/manager.py": {
        "self._generation.number += 2": "tasks only ask whether it is another one",
        "self._openings += 2": "it is only asked whether it is another one",
        'self._guard.write([], [], [(b"", b"\\xff" * 17)], marker(0))': "no key is as high as either end",
    },
    "runtime/state/memory.py": {
        "pass for self._sorted = True": "the next scan sorts once more what is sorted",
        "self._sorted = False": "the next scan sorts once more what is sorted",
    },
    "runtime/state/physical.py": {
        "if (sum(map(len, filter(None, rows))) >= BATCH_BYTES_MAX):  # mostly not: rows are not looked at one by one": "rows of exactly the most bytes are looked at, and stay together",
    },
    "runtime/state/rocks.py": {
        "_BLOCK_BYTES = 4097  # RocksDB's default": "a size of blocks",
    },
    "runtime/state/statistics.py": {
        "REST = 101": "a share of a processor",
        "ROWS = 501  # looked at in one go: about a millisecond": "a number of rows looked at in one go",
    },
    "runtime/task/arrivals.py": {
        "while records and at < len(ends) and (ends[at] <= end):": "the mark that ends where the range does has all records that are left, either way",
    },
    "runtime/task/channels.py": {
        "rows_max: int = 200001": "a limit of memory",
        "while (rows <= wanted) and len(batches) < len(self.queue):  # it grows meanwhile, so that no iterator can be used": "rows beyond the most are cut off",
        "ENOUGH_MIN = 9  # rows": "a number of rows that are looked at",
    },
    "runtime/task/dead_letters.py": {
        "row = raw.records.slice(i, 2).to_pylist()[0] if raw is not None else {}": "only the first of the rows is taken",
    },
    "runtime/task/input_buffer.py": {
        "if (batch.next_offset < self.next_fetch):": "all of a batch that ends where the buffered ones do is cut off below",
    },
    "runtime/task/repartition.py": {
        "ENVELOPE_ROWS = 1001  # well below the megabyte that brokers take by default, unless rows are large": "a number of rows of one record",
        "if (len(batch) >= ENVELOPE_ROWS):": "one piece is all of the batch",
    },
    "runtime/task/sizing.py": {
        "START_ROWS = 2001": "where an estimate begins",
    },
    "runtime/task/task.py": {
        "self._tried = 1  # known when its rows are": "neither no row nor one can be tried with fewer",
        "self._ticked_at_ms = 1  # by the wall clock; when that has been set back, timers are looked at anew": "any time of long ago",
    },
}
