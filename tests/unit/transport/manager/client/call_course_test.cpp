// Where calls go, attempt by attempt.
#include "transport/manager/client/call_course.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::manager {

namespace {

const call_attempt success{.state = attempt_state::answered, .code = answer_code::ok};
const call_attempt silence{.state = attempt_state::unanswered, .message = "silence"};
const call_attempt absence{.state = attempt_state::unsent, .message = "absence"};

call_attempt refusal(answer_code code) {
  return {.state = attempt_state::answered, .code = code, .message = "refusal"};
}

call_attempt pointer(std::string leader) {
  return {.state = attempt_state::answered,
          .code = answer_code::server_not_leader,
          .message = "a follower",
          .leader = std::move(leader)};
}

call_course course_of(rpc_kind kind) {
  return {kind, {"a:1", "b:2"}, 3};
}

call_failure failure_of(const std::optional<call_outcome<>>& end) {
  BOOST_TEST_REQUIRE(end.has_value());
  BOOST_TEST_REQUIRE(!end->has_value());
  return end->error();
}

void check_fault(const std::optional<call_outcome<>>& end, call_fault fault) {
  BOOST_TEST((failure_of(end).fault == fault), failure_of(end).message);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(call_courses)

BOOST_AUTO_TEST_CASE(a_call_that_is_answered_ends) {
  for (const rpc_kind kind : {rpc_kind::read, rpc_kind::repeatable_write, rpc_kind::single_write}) {
    call_course course = course_of(kind);
    BOOST_TEST(course.address() == "a:1");
    BOOST_TEST(course.take(success)->has_value());
    call_course other = course_of(kind);
    const auto failure = failure_of(other.take(refusal(answer_code::not_found)));
    BOOST_TEST((failure.fault == call_fault::refused && failure.code == answer_code::not_found));
    BOOST_TEST(failure.message == "a:1: refusal");
  }
}

BOOST_AUTO_TEST_CASE(a_manager_that_is_away_makes_room_for_the_next_one) {
  call_course course = course_of(rpc_kind::single_write);
  BOOST_TEST(!course.take(absence));
  BOOST_TEST(course.address() == "b:2");
  check_fault(course.take(absence), call_fault::unreachable);
}

BOOST_AUTO_TEST_CASE(a_follower_sends_any_call_to_its_leader) {
  for (const rpc_kind kind : {rpc_kind::read, rpc_kind::repeatable_write, rpc_kind::single_write}) {
    call_course course = course_of(kind);
    BOOST_TEST(!course.take(pointer("c:3")));
    BOOST_TEST(course.address() == "c:3");
    BOOST_TEST(course.take(success)->has_value());
  }
}

BOOST_AUTO_TEST_CASE(a_leader_that_is_away_makes_room_for_the_addresses_that_are_left) {
  call_course course = course_of(rpc_kind::single_write);
  BOOST_TEST(!course.take(pointer("c:3")));
  BOOST_TEST(!course.take(absence));
  BOOST_TEST(course.address() == "b:2");
}

BOOST_AUTO_TEST_CASE(a_circle_of_followers_ends_after_the_hops_that_are_allowed) {
  call_course course = course_of(rpc_kind::read);
  BOOST_TEST(!course.take(pointer("b:2")));
  BOOST_TEST(!course.take(pointer("a:1")));
  BOOST_TEST(!course.take(pointer("b:2")));
  const auto failure = failure_of(course.take(pointer("a:1")));
  BOOST_TEST((failure.fault == call_fault::refused && failure.code == answer_code::server_not_leader));
}

BOOST_AUTO_TEST_CASE(a_follower_without_a_leader_makes_room_for_the_next_one) {
  call_course course = course_of(rpc_kind::read);
  BOOST_TEST(!course.take(pointer("")));
  BOOST_TEST(course.address() == "b:2");
  check_fault(course.take(pointer("")), call_fault::refused);
}

BOOST_AUTO_TEST_CASE(a_leader_whose_address_is_none_is_not_followed) {
  for (const char* leader : {"c", "c:0", ":", "c:99999", "unix"}) {
    call_course course = course_of(rpc_kind::read);
    check_fault(course.take(pointer(leader)), call_fault::refused);
  }
}

BOOST_AUTO_TEST_CASE(a_read_is_repeated_once_at_the_next_address) {
  call_course course = course_of(rpc_kind::read);
  BOOST_TEST(!course.take(silence));
  BOOST_TEST(course.address() == "b:2");
  check_fault(course.take(silence), call_fault::unanswered);
}

BOOST_AUTO_TEST_CASE(with_one_address_the_same_manager_is_asked_again) {
  call_course course(rpc_kind::read, {"a:1"}, 3);
  BOOST_TEST(!course.take(silence));
  BOOST_TEST(course.address() == "a:1");
  BOOST_TEST(course.take(success)->has_value());
}

BOOST_AUTO_TEST_CASE(a_single_write_without_an_answer_is_never_repeated) {
  call_course course = course_of(rpc_kind::single_write);
  check_fault(course.take(silence), call_fault::unknown_outcome);
}

BOOST_AUTO_TEST_CASE(a_write_that_may_have_arrived_is_certain_by_an_ok_alone) {
  for (const call_attempt& second :
       {silence, refusal(answer_code::session_not_found), refusal(answer_code::permission_denied)}) {
    call_course course = course_of(rpc_kind::repeatable_write);
    BOOST_TEST(!course.take(silence));
    check_fault(course.take(second), call_fault::unknown_outcome);
  }
  call_course course = course_of(rpc_kind::repeatable_write);
  BOOST_TEST(!course.take(silence));
  check_fault(course.take(absence), call_fault::unknown_outcome);
  call_course other = course_of(rpc_kind::repeatable_write);
  BOOST_TEST(!other.take(silence));
  BOOST_TEST(other.take(success)->has_value());
}

BOOST_AUTO_TEST_CASE(a_second_answer_to_a_read_is_as_good_as_the_first) {
  call_course course = course_of(rpc_kind::read);
  BOOST_TEST(!course.take(silence));
  const auto failure = failure_of(course.take(refusal(answer_code::not_found)));
  BOOST_TEST((failure.fault == call_fault::refused && failure.code == answer_code::not_found));
}

BOOST_AUTO_TEST_CASE(time_that_is_over_is_a_lost_answer_only_after_an_attempt) {
  call_course fresh = course_of(rpc_kind::single_write);
  check_fault(fresh.expire(), call_fault::unreachable);
  call_course read = course_of(rpc_kind::read);
  BOOST_TEST(!read.take(silence));
  check_fault(read.expire(), call_fault::unanswered);
  call_course write = course_of(rpc_kind::repeatable_write);
  BOOST_TEST(!write.take(silence));
  check_fault(write.expire(), call_fault::unknown_outcome);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
