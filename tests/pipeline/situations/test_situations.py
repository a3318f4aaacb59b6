"""The audit says of every situation what is true, and nothing that is not."""

from __future__ import annotations

from typing import Final

import pytest

from tests.pipeline.situations.judge import SITUATIONS, judge

_SEED: Final = 1
_MESSAGES: Final = 120  #: the smallest trade in which everything of it happens
#: Of each rule of the audit the situation that is hardest for it; all of them are judged by
#: `python -m tests.pipeline.situations`, which takes some minutes.
_JUDGED: Final = (
    "virtual_topic_lost_here_and_repeated_there",
    "composite_queue_half_unread",
    "durable_topic_and_a_loss",
    "topic_without_durables",
    "wildcard_of_many_levels",
    "clean_with_skews",
    "no_messages",
    "over_midnight",
    "a_gap_taints_its_hour_only",
    "a_gap_here_and_a_loss_there",
    "a_gap_has_room_for_some",
    "lost_or_only_dropped",
    "log_close_tells_of_drops",
    "killed_with_messages_in_hand",
    "the_consumers_hosts_are_missing",
    "one_of_two_consumers_is_missing",
    "the_roster_is_met",
    "lost_and_repeated_in_one_second",
    "handlers_ran_twice",
    "handlers_ran_on_without_a_link_and_succeeded",
    "handlers_ran_on_without_a_link_and_nobody_tells",
    "all_at_once_with_gaps",
    "gaps_without_harm",
    "a_compressed_segment",
    "a_name_in_capitals",
    "two_writers_of_one_name_and_losses",
    "numbers_that_fit_even_better",
    "nobody_reads",
    "java_senders_and_a_repeat",
    "java_senders_and_a_repeat_that_nobody_told",
    "dead_letters_come_back_and_die_again",
    "done_without_its_ack_and_then_dead",
    "a_replay_dies_between_send_and_ack",
    "one_name_in_two_data_centres_and_one_never_had_some",
    "half_a_segment_again",
    "many_spoilt_lines",
    "a_spoilt_line_taints_its_writer_only",
    "expired_in_the_broker_and_counted",
    "receipts_lost_beside_a_suppressed_repeat",
    "in_flight_with_skews",
    "waits_for_its_redelivery",
    "messages_are_lost_while_others_go_back",
    "waited_with_a_consumer_that_was_closed",
    "prefetched_behind_a_planned_wait",
    "more_is_overdue_than_is_in_hand",
    "one_session_of_several_is_stuck",
    "one_is_stuck_and_one_is_lost",
    "had_by_one_whose_link_is_lost",
    "living_fleet_and_a_loss",
    "transactions_in_doubt_that_were_rolled_back",
    "another_client_takes_messages",
    "lost_in_the_broker",
    "the_broker_counts_fewer_than_were_sent",
    "sent_again_and_done_twice",
    "forwarded_under_its_key_and_lost",
    "a_clock_is_set_back_and_messages_are_lost",
    "times_of_the_last_moment",
    "keys_of_their_own_and_a_loss",
    "discarded_twice_beside_a_loss",
    "compacted_in_the_middle",
    "a_living_fleet_that_waits",
    "copies_of_dead_letters_are_gone_under_a_living_fleet",
    "copies_of_dead_letters_are_moved_back_and_one_is_gone",
    "copies_of_dead_letters_wait_for_a_slow_reader",
    "a_durable_subscriber_has_closed",
    "a_reader_has_closed_about_a_full_hour",
    "a_reader_of_many_queues_is_still_there",
    "a_reader_closed_in_order_and_lines_are_missing",
    "one_of_two_sessions_of_a_name_is_still_there",
    "the_broker_has_nothing_for_a_reader_that_has_closed",
)
#: Those in which much hangs on when something was.
_SKEWED: Final = (
    "a_gap_taints_its_hour_only",
    "the_broker_agrees",
    "the_roster_is_met",
    "waits_for_its_redelivery",
    "killed_with_messages_in_hand",
    "living_fleet_and_a_loss",
    "living_fleet_with_messages_under_way",
    "copies_of_dead_letters_are_gone",
    "one_was_overdue_when_its_reader_closed",
)


@pytest.mark.parametrize("name", _JUDGED)
def test_a_situation_is_judged_rightly(name: str) -> None:
    """Verdicts, numbers and findings are among those that an honest audit may tell."""
    judged = judge(SITUATIONS[name], _SEED, engine="local", messages=_MESSAGES)

    assert judged.faults == ()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", _SKEWED)
def test_wrong_clocks_change_no_verdict(name: str, seed: int) -> None:
    """The same truth, whatever the clocks of the hosts show."""
    judged = judge(SITUATIONS[name], seed, engine="local", messages=_MESSAGES, skewed=True)

    assert judged.faults == ()
