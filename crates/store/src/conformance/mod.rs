//! The suite every store must pass, one file per kind of row. A case gets an empty store and panics if it does not behave as the
//! [`Store`](crate::Store) trait documents; [`conformance_tests!`](crate::conformance_tests) turns each case into a test.
//!
//! `fixture` builds rows. They are made from JSON, so that they also show that bodies written by an earlier release can still be
//! read. `compare` reads everything from two stores and shows where they differ.

#![expect(
    clippy::unwrap_used,
    reason = "these are tests: a panic is a failed test"
)]
#![allow(missing_docs, reason = "the names of the cases say what they check")]

pub mod compare;
pub mod executions;
pub mod fixture;
pub mod history;
pub mod lists;
pub mod logs;
pub mod registry;
pub mod removal;
pub mod reopening;
pub mod runs;
pub mod sessions;
pub mod sharing;
pub mod tasks;
pub mod visibility;

pub use executions::task_search;

/// One test per case. `$make` returns an empty store as `Arc<dyn Store>`, and anything that must outlive it.
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_tests! {
            @cases $make;
            runs: a_created_run_loads_as_it_was_decided, a_change_applies_on_top, an_old_copy_of_a_run_becomes_the_newest, every_kind_of_part_comes_back,
                numbers_come_back_bit_for_bit, parts_are_put_replaced_and_deleted, a_stale_version_writes_nothing,
                a_run_is_created_once, a_taken_workflow_id_writes_nothing, an_idempotency_key_belongs_to_one_run, continuing_moves_the_current_run,
                many_runs_are_created_at_once,
                a_workflow_moves_on_from_its_newest_run_only, a_stale_continuation_writes_neither_run,
                commits_apply_in_the_order_of_the_calls, a_failed_commit_fails_those_built_on_it,
                of_concurrent_commits_on_one_version_one_wins, concurrent_commits_on_many_runs_all_succeed,
                malformed_commits_are_refused, a_commit_is_applied_although_its_caller_left;
            history: pages_are_gapless_and_cut, a_page_ends_before_it_is_too_long, events_keep_every_column, an_event_is_never_written_twice,
                a_conflict_is_reported_before_a_repeated_event, a_poisoned_commit_fails_alone,
                commands_are_listed_newest_first, a_forgotten_command_leaves_its_request_id,
                large_arguments_of_open_messages_come_back, results_of_updates_come_back, a_command_may_be_written_again, a_request_id_finds_its_command,
                a_request_id_is_taken_once;
            tasks: a_task_is_found_in_every_status, ready_tasks_come_in_matching_order, ready_queues_are_those_with_work,
                leases_are_found_by_every_filter, queue_counts_add_up, finished_tasks_leave_the_queues;
            logs: a_log_is_read_line_by_line, old_lines_of_a_log_are_deleted, a_refused_commit_logs_nothing;
            lists: pages_are_newest_first_with_ties, every_filter_shows_its_runs, a_summary_shows_the_newest_state,
                alarms_are_due_earliest_first, a_closed_run_is_due_if_its_core_has_an_alarm;
            visibility: attributes_are_defined_once_and_deleted, a_query_finds_its_runs, a_changed_value_is_found_at_once,
                a_query_pages_like_a_list, another_namespace_is_never_found;
            executions: a_search_finds_and_counts_its_runs, a_search_sorts_and_pages, a_search_follows_every_change,
                lists_keep_the_programs_apart, a_search_stays_in_its_namespace;
            removal: a_removed_run_is_found_nowhere, a_stale_removal_removes_nothing, a_new_run_takes_nothing_of_a_removed_one;
            reopening: an_opened_run_is_in_lists_and_due_again, deleted_tasks_are_gone;
            task_search: tasks_are_found_and_counted, tasks_are_sorted_and_paged, runs_are_found_by_their_tasks,
                a_changed_task_is_found_as_it_is;
            registry: namespaces_are_created_once_and_updated, a_document_has_a_version, of_concurrent_changes_none_is_lost,
                workers_are_put_replaced_and_deleted,
                rollouts_are_put_and_replaced;
            sessions: a_session_is_written_one_version_after_the_other,
                a_session_and_a_run_are_written_together_or_not_at_all, of_concurrent_takers_one_gets_the_session,
                held_and_due_sessions_are_found, attempts_and_ready_tasks_of_sessions_are_apart,
                sessions_are_listed_newest_change_first, only_old_final_sessions_are_deleted;
        }
    };
    (@cases $make:expr; $($module:ident: $($case:ident),+;)+) => {
        $($(
            #[tokio::test]
            async fn $case() {
                let (store, _kept) = $make;
                $crate::conformance::$module::$case(&*store).await;
            }
        )+)+
    };
}

/// Defines the tests of a store that several servers share. The expression returns it as two of them see it, and what must be kept.
#[macro_export]
macro_rules! sharing_tests {
    ($make:expr) => {
        $crate::sharing_tests! {
            @cases $make;
            the_hint_of_a_commit_reaches_the_other_server, a_task_is_left_to_one_server_for_a_moment,
            a_look_finds_what_the_polls_accept, a_look_has_some_of_each_fairness_class,
            a_look_finds_leases_of_polls_and_changed_runs, known_and_released_tasks,
            a_new_task_is_left_to_its_server_unless_it_was_offered, due_runs_are_taken_by_one_server, a_cap_holds_over_all_servers,
            caps_count_by_namespace_definition_and_worker, a_volatile_document_is_written_and_read_like_others
        }
    };
    (@cases $make:expr; $($case:ident),+) => {
        $(
            #[tokio::test]
            async fn $case() {
                let (first, second, _kept) = $make;
                $crate::conformance::sharing::$case(&*first, &*second).await;
            }
        )+
    };
}
