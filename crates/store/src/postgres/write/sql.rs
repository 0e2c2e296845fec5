//! The text of the statements that write rows, each with an array per column.

pub(super) const CREATE_RUNS: &str = "INSERT INTO runs (run_id, namespace, workflow_id, run_number, workflow_type, task_queue, business_key,
     compatibility, started_at, list_status, closed_at, correlation_id, parent_id)
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::int8[], $5::text[], $6::text[], $7::text[], $8::text[], $9::int8[],
     $10::text[], $11::int8[], $12::text[], $13::text[])";

pub(super) const CREATE_SPECS: &str =
    "INSERT INTO run_specs (run_id, body) SELECT * FROM unnest($1::text[], $2::text[])";

pub(super) const CREATE_NAMES: &str =
    "INSERT INTO workflow_runs (namespace, workflow_id, run_number, run_id)
     SELECT * FROM unnest($1::text[], $2::text[], $3::int8[], $4::text[])";

pub(super) const CREATE_STATES: &str = "INSERT INTO run_states (run_id, version, list_status, closed_at, alarm, status, updated_at, definition,
     priority, created_by, idempotency_key, classifier, reason, failed_references, state, parts_version, parts_since)
     SELECT n.*, n.version, 1 FROM unnest($1::text[], $2::int8[], $3::text[], $4::int8[], $5::int8[], $6::text[], $7::int8[], $8::int8[],
     $9::int8[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])
     n (run_id, version, list_status, closed_at, alarm, status, updated_at, definition, priority, created_by, idempotency_key,
     classifier, reason, failed_references, state)";

pub(super) const UPDATE_STATES: &str = "UPDATE run_states s SET version = n.version, list_status = n.list_status, closed_at = n.closed_at,
     alarm = n.alarm, status = n.status, updated_at = n.updated_at, definition = n.definition, priority = n.priority,
     created_by = n.created_by, idempotency_key = n.idempotency_key, classifier = n.classifier, reason = n.reason,
     failed_references = n.failed_references, state = n.state, parts_version = n.version,
     parts_since = CASE WHEN s.parts_version = s.version THEN s.parts_since ELSE s.version + 1 END
     FROM unnest($1::text[], $2::int8[], $3::text[], $4::int8[], $5::int8[], $6::text[], $7::int8[], $8::int8[], $9::int8[],
     $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[])
     n (run_id, version, list_status, closed_at, alarm, status, updated_at, definition, priority, created_by, idempotency_key,
     classifier, reason, failed_references, state) WHERE s.run_id = n.run_id";

pub(super) const MOVE_IN_LISTS: &str = "UPDATE runs r SET list_status = n.list_status, closed_at = n.closed_at, correlation_id = n.correlation_id
     FROM unnest($1::text[], $2::text[], $3::int8[], $4::text[]) n (run_id, list_status, closed_at, correlation_id)
     WHERE r.run_id = n.run_id";

pub(super) const MOVE_ATTRIBUTES: &str = "UPDATE run_attributes a SET list_status = n.list_status
     FROM unnest($1::text[], $2::text[]) n (run_id, list_status) WHERE a.run_id = n.run_id";

pub(super) const DELETE_ALARMS: &str = "DELETE FROM run_alarms WHERE run_id = ANY($1::text[])";

pub(super) const PUT_ALARMS: &str =
    "INSERT INTO run_alarms (run_id, alarm) SELECT * FROM unnest($1::text[], $2::int8[])
     ON CONFLICT (run_id) DO UPDATE SET alarm = excluded.alarm";

pub(super) const DELETE_PARTS: &str =
    "DELETE FROM run_parts p USING unnest($1::text[], $2::text[]) n (run_id, part)
     WHERE p.run_id = n.run_id AND p.part = n.part";

pub(super) const PUT_PARTS: &str = "INSERT INTO run_parts (run_id, part, searched, body, version)
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[])
     ON CONFLICT (run_id, part) DO UPDATE SET searched = excluded.searched, body = excluded.body, version = excluded.version";

pub(super) const APPEND_EVENTS: &str = "INSERT INTO events (run_id, sequence, id, event_type, recorded_at, workflow_task_id, workflow_command_id,
     principal, payload)
     SELECT * FROM unnest($1::text[], $2::int8[], $3::text[], $4::text[], $5::int8[], $6::text[], $7::text[], $8::text[], $9::text[])";

pub(super) const PUT_TASKS: &str = "INSERT INTO tasks (task_id, status, namespace, kind, queue, priority, available_at, lease_owner, session_id, type_name,
     fairness_key, body, run_id, sequence, task_type, def_name, reference, shown_status, workflow_type, correlation_id, domain,
     scheduled_at, started_at, ended_at, updated_at)
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int2[], $7::int8[], $8::text[], $9::text[],
     $10::text[], $11::text[], $12::text[], $13::text[], $14::int8[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[],
     $20::text[], $21::text[], $22::int8[], $23::int8[], $24::int8[], $25::int8[])
     ON CONFLICT (task_id) DO UPDATE SET status = excluded.status, namespace = excluded.namespace, kind = excluded.kind,
     queue = excluded.queue, priority = excluded.priority, available_at = excluded.available_at, lease_owner = excluded.lease_owner,
     type_name = excluded.type_name, fairness_key = excluded.fairness_key, body = excluded.body, run_id = excluded.run_id,
     sequence = excluded.sequence, task_type = excluded.task_type, def_name = excluded.def_name, reference = excluded.reference,
     shown_status = excluded.shown_status, workflow_type = excluded.workflow_type, correlation_id = excluded.correlation_id,
     domain = excluded.domain, scheduled_at = excluded.scheduled_at, started_at = excluded.started_at, ended_at = excluded.ended_at,
     updated_at = excluded.updated_at";

/// Skips a row that a look holds: it is of no use for long.
pub(super) const GIVE_BACK: &str = "DELETE FROM taken t
     USING (SELECT key FROM taken WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE SKIP LOCKED) n WHERE t.key = n.key";

pub(super) const DELETE_TASKS: &str = "DELETE FROM tasks WHERE task_id = ANY($1::text[])";

pub(super) const DELETE_LOGS: &str = "DELETE FROM task_logs l USING unnest($1::text[], $2::int8[], $3::int8[]) n (run_id, task, line)
     WHERE l.run_id = n.run_id AND l.task = n.task AND l.line = n.line";

pub(super) const PUT_LOGS: &str = "INSERT INTO task_logs (run_id, task, line, created_at, text)
     SELECT * FROM unnest($1::text[], $2::int8[], $3::int8[], $4::int8[], $5::text[])
     ON CONFLICT (run_id, task, line) DO UPDATE SET created_at = excluded.created_at, text = excluded.text";

pub(super) const DELETE_COMMANDS: &str =
    "DELETE FROM commands c USING unnest($1::text[], $2::int8[]) n (run_id, sequence)
     WHERE c.run_id = n.run_id AND c.sequence = n.sequence";

pub(super) const DELETE_REQUESTS: &str = "DELETE FROM requests r
     USING unnest($1::text[], $2::text[], $3::text[], $4::int8[]) n (namespace, workflow_id, run_id, sequence)
     WHERE r.namespace = n.namespace AND r.workflow_id = n.workflow_id AND r.run_id = n.run_id AND r.sequence = n.sequence";

pub(super) const PUT_COMMANDS: &str = "INSERT INTO commands (run_id, sequence, body) SELECT * FROM unnest($1::text[], $2::int8[], $3::text[])
     ON CONFLICT (run_id, sequence) DO UPDATE SET body = excluded.body";

pub(super) const PUT_REQUESTS: &str = "INSERT INTO requests (namespace, workflow_id, request_id, run_id, sequence)
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[])
     ON CONFLICT (namespace, workflow_id, request_id) DO UPDATE SET run_id = excluded.run_id, sequence = excluded.sequence";

pub(super) const PUT_KEYS: &str =
    "INSERT INTO workflow_keys (namespace, workflow_type, key, run_id)
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
     ON CONFLICT (namespace, workflow_type, key) DO UPDATE SET run_id = excluded.run_id";

pub(super) const DELETE_ATTRIBUTES: &str =
    "DELETE FROM run_attributes WHERE run_id = ANY($1::text[])";

pub(super) const PUT_ATTRIBUTES: &str = "INSERT INTO run_attributes (run_id, name, kind, value, namespace, list_status, started_at)
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int8[])";

pub(super) const PUT_SESSIONS: &str = "INSERT INTO worker_sessions (namespace, session_id, version, status, queue, lease_owner, deadline, ended_at,
     updated_at, body)
     SELECT * FROM unnest($1::text[], $2::text[], $3::int8[], $4::text[], $5::text[], $6::text[], $7::int8[], $8::int8[], $9::int8[],
     $10::text[])
     ON CONFLICT (namespace, session_id) DO UPDATE SET version = excluded.version, status = excluded.status, queue = excluded.queue,
     lease_owner = excluded.lease_owner, deadline = excluded.deadline, ended_at = excluded.ended_at, updated_at = excluded.updated_at,
     body = excluded.body";

pub(super) const DELETE_DOCUMENTS: &str = "DELETE FROM documents d
     USING unnest($1::text[], $2::text[], $3::text[], $4::text[]) n (kind, namespace, name, qualifier)
     WHERE d.kind = n.kind AND d.namespace = n.namespace AND d.name = n.name AND d.qualifier = n.qualifier";

pub(super) const PUT_DOCUMENTS: &str = "INSERT INTO documents (kind, namespace, name, qualifier, version, body)
     SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[], $6::text[])
     ON CONFLICT (kind, namespace, name, qualifier) DO UPDATE SET version = excluded.version, body = excluded.body";

/// Every statement, to be prepared when a connection is opened: a statement that is not prepared yet would be sent later than those
/// behind it.
pub(super) const ALL: [&str; 27] = [
    GIVE_BACK,
    CREATE_RUNS,
    CREATE_SPECS,
    CREATE_NAMES,
    CREATE_STATES,
    UPDATE_STATES,
    MOVE_IN_LISTS,
    MOVE_ATTRIBUTES,
    DELETE_ALARMS,
    PUT_ALARMS,
    DELETE_PARTS,
    PUT_PARTS,
    APPEND_EVENTS,
    PUT_TASKS,
    DELETE_LOGS,
    DELETE_TASKS,
    PUT_LOGS,
    DELETE_COMMANDS,
    DELETE_REQUESTS,
    PUT_COMMANDS,
    PUT_REQUESTS,
    PUT_KEYS,
    DELETE_ATTRIBUTES,
    PUT_ATTRIBUTES,
    PUT_SESSIONS,
    DELETE_DOCUMENTS,
    PUT_DOCUMENTS,
];
