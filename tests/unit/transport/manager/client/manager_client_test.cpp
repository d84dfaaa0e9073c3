// The client beside managers in the same process that lose answers, point elsewhere, hang or are away.
#include "transport/manager/client/manager_client.hpp"

#include <sys/stat.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/unit/transport/manager/client/fake_manager.hpp"

namespace cenote::manager {

namespace {

using namespace std::chrono_literals;

using replies = std::deque<fake_reply>;

constexpr auto unreached = 1h;

client_options options_of(std::vector<endpoint> addresses) {
  return {.meta = addresses,
          .admin = addresses,
          .limits = {.call = unreached, .attempt = unreached, .connection = unreached, .hops = 3}};
}

std::unique_ptr<manager_client> client_of(const client_options& options) {
  auto made = manager_client::make(options);
  BOOST_TEST_REQUIRE(made.has_value());
  return std::move(*made);
}

auto start_write(manager_client& client) {
  return client.call<wire::meta::StartWriteCacheResponse>(rpc::start_write_cache, wire::meta::StartWriteCacheRequest());
}

auto count_hits(manager_client& client) {
  return client.call<wire::meta::GetCacheLocationLenResponse>(rpc::get_cache_location_len,
                                                              wire::meta::GetCacheLocationLenRequest());
}

auto finish_write(manager_client& client, int blocks) {
  wire::meta::FinishWriteCacheRequest request;
  request.mutable_success_blocks()->set_offset(blocks);
  return client.call<wire::meta::CommonResponse>(rpc::finish_write_cache, request);
}

auto list_storages(manager_client& client) {
  return client.call<wire::admin::ListStorageResponse>(rpc::list_storage, wire::admin::ListStorageRequest());
}

template <class Answer>
call_failure failure_of(const call_outcome<Answer>& outcome) {
  BOOST_TEST_REQUIRE(!outcome.has_value());
  return outcome.error();
}

template <class Answer>
void check_fault(const call_outcome<Answer>& outcome, call_fault fault) {
  BOOST_TEST((failure_of(outcome).fault == fault), failure_of(outcome).message);
}

/// A port that is free, and at which nothing listens.
endpoint empty_place() {
  const fake_manager manager;
  return manager.place();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(manager_clients)

BOOST_AUTO_TEST_CASE(an_answer_comes_with_its_fields) {
  fake_manager manager;
  const auto client = client_of(options_of({manager.place()}));
  const auto started = start_write(*client);
  BOOST_TEST_REQUIRE(started.has_value());
  BOOST_TEST(started->write_session_id() == "session");
  BOOST_TEST(list_storages(*client).has_value());
  BOOST_TEST(manager.calls() == 2);
}

BOOST_AUTO_TEST_CASE(a_refusal_has_its_code_and_message_and_is_asked_once) {
  fake_manager manager(replies{{.code = answer_code::instance_not_exist}});
  const auto client = client_of(options_of({manager.place()}));
  const auto failure = failure_of(count_hits(*client));
  BOOST_TEST((failure.fault == call_fault::refused && failure.code == answer_code::instance_not_exist));
  BOOST_TEST(failure.message == manager.address() + ": the message");
  BOOST_TEST(manager.calls() == 1);
}

BOOST_AUTO_TEST_CASE(a_read_whose_answer_is_lost_is_sent_once_more) {
  fake_manager manager(replies{lost_reply(), {}});
  const auto client = client_of(options_of({manager.place()}));
  BOOST_TEST(count_hits(*client).has_value());
  BOOST_TEST(manager.calls() == 2);
  manager.set_replies({lost_reply()});
  check_fault(count_hits(*client), call_fault::unanswered);
  BOOST_TEST(manager.calls() == 4);
}

BOOST_AUTO_TEST_CASE(a_start_whose_answer_is_lost_is_sent_once_and_its_outcome_is_unknown) {
  fake_manager manager(replies{lost_reply(), {}}), other;
  const auto client = client_of(options_of({manager.place(), other.place()}));
  check_fault(start_write(*client), call_fault::unknown_outcome);
  BOOST_TEST(manager.calls() == 1);
  BOOST_TEST(other.calls() == 0);
}

BOOST_AUTO_TEST_CASE(a_finish_whose_answer_is_lost_is_sent_again_with_its_mask) {
  fake_manager manager(replies{lost_reply(), {}});
  const auto client = client_of(options_of({manager.place()}));
  BOOST_TEST(finish_write(*client, 7).has_value());
  BOOST_TEST(manager.calls() == 2);
  BOOST_TEST_REQUIRE(manager.masks.size() == 2);
  BOOST_TEST(manager.masks[0] == manager.masks[1]);
  BOOST_TEST(!manager.masks[0].empty());
}

BOOST_AUTO_TEST_CASE(a_finish_that_is_refused_the_second_time_has_an_unknown_outcome) {
  fake_manager manager(replies{lost_reply(), {.code = answer_code::session_not_found}});
  const auto client = client_of(options_of({manager.place()}));
  const auto failure = failure_of(finish_write(*client, 1));
  BOOST_TEST((failure.fault == call_fault::unknown_outcome));
  BOOST_TEST((failure.code == answer_code::session_not_found));
  BOOST_TEST(manager.calls() == 2);
}

BOOST_AUTO_TEST_CASE(a_follower_s_leader_gets_the_call_and_those_after_it) {
  fake_manager leader;
  fake_manager follower(replies{follower_reply(leader.address())});
  const auto client = client_of(options_of({follower.place()}));
  for (int i = 0; i < 3; ++i) BOOST_TEST(start_write(*client).has_value());
  BOOST_TEST(follower.calls() == 1);
  BOOST_TEST(leader.calls() == 3);
}

BOOST_AUTO_TEST_CASE(a_leader_that_leads_no_more_is_left) {
  fake_manager first, second;
  const auto client = client_of(options_of({first.place()}));
  BOOST_TEST(list_storages(*client).has_value());
  first.set_replies({follower_reply(second.address())});
  BOOST_TEST(list_storages(*client).has_value());
  BOOST_TEST(list_storages(*client).has_value());
  BOOST_TEST(first.calls() == 2);
  BOOST_TEST(second.calls() == 2);
}

BOOST_AUTO_TEST_CASE(a_circle_of_followers_ends) {
  fake_manager first, second(replies{follower_reply(first.address())});
  first.set_replies({follower_reply(second.address())});
  const auto client = client_of(options_of({first.place(), second.place()}));
  const auto failure = failure_of(start_write(*client));
  BOOST_TEST((failure.fault == call_fault::refused && failure.code == answer_code::server_not_leader));
  BOOST_TEST(first.calls() + second.calls() == 4);
}

BOOST_AUTO_TEST_CASE(a_manager_that_is_away_is_passed_over_even_for_a_start) {
  fake_manager manager;
  const auto client = client_of(options_of({empty_place(), manager.place()}));
  BOOST_TEST(start_write(*client).has_value());
  BOOST_TEST(manager.calls() == 1);
}

BOOST_AUTO_TEST_CASE(a_call_to_managers_that_are_all_away_is_known_not_to_be_done) {
  const auto client = client_of(options_of({empty_place(), empty_place()}));
  check_fault(start_write(*client), call_fault::unreachable);
  check_fault(count_hits(*client), call_fault::unreachable);
}

BOOST_AUTO_TEST_CASE(a_manager_that_comes_back_is_asked_again) {
  fake_manager manager;
  const auto client = client_of(options_of({manager.place()}));
  BOOST_TEST(list_storages(*client).has_value());
  manager.stop();
  const call_fault fault = failure_of(start_write(*client)).fault;  // the connection's end may come with the call
  BOOST_TEST((fault == call_fault::unreachable || fault == call_fault::unknown_outcome));
  manager.restart();
  BOOST_TEST(start_write(*client).has_value());
  BOOST_TEST(manager.calls() == 2);
}

BOOST_AUTO_TEST_CASE(a_start_at_a_manager_that_dies_meanwhile_has_an_unknown_outcome) {
  fake_manager manager(replies{{.hangs = true}});
  const auto client = client_of(options_of({manager.place()}));
  std::thread killer([&] {
    manager.await_call();
    manager.stop();
  });
  const auto outcome = start_write(*client);
  killer.join();
  check_fault(outcome, call_fault::unknown_outcome);
  BOOST_TEST(manager.calls() == 1);
}

BOOST_AUTO_TEST_CASE(a_manager_that_hangs_ends_a_call_at_its_deadline) {
  fake_manager manager(replies{{.hangs = true}});
  client_options options = options_of({manager.place()});
  options.limits.attempt = 50ms;
  const auto client = client_of(options);
  check_fault(start_write(*client), call_fault::unknown_outcome);
  BOOST_TEST(manager.calls() == 1);
  check_fault(count_hits(*client), call_fault::unanswered);
  BOOST_TEST(manager.calls() == 3);
  options.limits = {.call = 50ms, .attempt = unreached, .connection = unreached, .hops = 3};
  check_fault(count_hits(*client_of(options)), call_fault::unanswered);
}

BOOST_AUTO_TEST_CASE(an_answer_without_a_code_is_none) {
  fake_manager manager(replies{{.code = answer_code::unspecified}});
  const auto client = client_of(options_of({manager.place()}));
  check_fault(start_write(*client), call_fault::unknown_outcome);
  BOOST_TEST(manager.calls() == 1);
}

BOOST_AUTO_TEST_CASE(statuses_by_which_managers_refuse_are_refusals) {
  for (const auto& [status, code] : {std::pair(grpc::StatusCode::UNAUTHENTICATED, answer_code::permission_denied),
                                     std::pair(grpc::StatusCode::PERMISSION_DENIED, answer_code::permission_denied),
                                     std::pair(grpc::StatusCode::RESOURCE_EXHAUSTED, answer_code::rate_limited),
                                     std::pair(grpc::StatusCode::INVALID_ARGUMENT, answer_code::invalid_argument),
                                     std::pair(grpc::StatusCode::UNIMPLEMENTED, answer_code::unsupported)}) {
    fake_manager manager(replies{{.status = status}});
    const auto client = client_of(options_of({manager.place()}));
    const auto failure = failure_of(start_write(*client));
    BOOST_TEST((failure.fault == call_fault::refused && failure.code == code), failure.message);
    BOOST_TEST(manager.calls() == 1);
  }
}

BOOST_AUTO_TEST_CASE(a_service_without_an_address_is_not_asked) {
  fake_manager manager;
  client_options options = options_of({manager.place()});
  options.meta.clear();
  const auto client = client_of(options);
  check_fault(start_write(*client), call_fault::unreachable);
  BOOST_TEST(list_storages(*client).has_value());
}

BOOST_AUTO_TEST_CASE(an_account_is_sent_with_each_call) {
  const auto path = std::filesystem::temp_directory_path() / ("cenote-password-" + std::to_string(::getpid()));
  std::ofstream(path) << "secret\n";
  BOOST_TEST_REQUIRE(::chmod(path.c_str(), S_IRUSR | S_IWUSR) == 0);
  fake_manager manager;
  client_options options = options_of({manager.place()});
  options.account = "admin";
  options.password_file = path.native();
  BOOST_TEST(list_storages(*client_of(options)).has_value());
  BOOST_TEST(manager.authorization() == "Basic YWRtaW46c2VjcmV0");
  BOOST_TEST(list_storages(*client_of(options_of({manager.place()}))).has_value());
  BOOST_TEST(manager.authorization().empty());
  std::filesystem::remove(path);
  BOOST_TEST(!manager_client::make(options).has_value());
}

BOOST_AUTO_TEST_CASE(threads_may_share_a_client_while_the_leader_changes) {
  constexpr int calls = 50;
  fake_manager first, second;
  const auto client = client_of(options_of({first.place(), second.place()}));
  std::atomic<int> answers = 0;
  const auto ask = [&] {
    for (int i = 0; i < calls; ++i) answers += start_write(*client).has_value() ? 1 : 0;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(ask);
  first.await_call();
  first.set_replies({follower_reply(second.address())});
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST(list_storages(*client).has_value());
  BOOST_TEST(answers == 3 * calls);
  BOOST_TEST(first.calls() + second.calls() > 3 * calls);
}

BOOST_AUTO_TEST_CASE(a_leader_s_address_that_looks_like_a_socket_s_is_a_host_s) {
  fake_manager manager, follower(replies{follower_reply("unix:1")});
  client_options options = options_of({follower.place(), manager.place()});
  options.limits.connection = 1s;
  BOOST_TEST(start_write(*client_of(options)).has_value());
  BOOST_TEST(follower.calls() == 1);
  BOOST_TEST(manager.calls() == 1);
}

BOOST_AUTO_TEST_CASE(files_of_tls_that_are_not_there_are_refused) {
  fake_manager manager;
  client_options options = options_of({manager.place()});
  options.tls = {.ca = "/absent/ca.pem"};
  BOOST_TEST(!manager_client::make(options).has_value());
  options.tls = {.certificate = "/absent/cert.pem"};
  BOOST_TEST(!manager_client::make(options).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
