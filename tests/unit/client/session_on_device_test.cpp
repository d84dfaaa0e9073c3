// A session whose blocks lie on a device: the simulated one, opened once by the node and once by the session.
#include <boost/test/unit_test.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

#include "client/c_api_support.hpp"
#include "device/sim.hpp"
#include "tests/support/wrapped_sim.hpp"
#include "tests/unit/client/session_fixture.hpp"
#include "transport/local/attach.hpp"
#include "transport/local/socket.hpp"

namespace session_on_device_test {

using namespace cenote;
using namespace std::chrono_literals;
using testing::batch_of;
using testing::code_of;
using testing::content;
using testing::keys_of;
using testing::must;
using testing::part_bytes;
using testing::run_of;

namespace {

constexpr auto patience = 60s;

struct devices {
  std::shared_ptr<sim_device> nodes = std::make_shared<sim_device>();
  std::shared_ptr<sim_device> sim = std::make_shared<sim_device>();  // the session's
};

struct fixture : devices, testing::session_fixture {
  explicit fixture(std::chrono::milliseconds deadline = patience, std::uint64_t parts = 1)
      : session_fixture(128, 64, parts, deadline, "/nonexistent/cenote.sock", nodes.get(), sim) {}
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;
  ~fixture() {
    session.reset();
    sim.reset();
  }

  result<void> put(std::uint64_t first, std::size_t count) {
    const auto keys = keys_of(first, count);
    auto bytes = content(first, count);
    return session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, count)).status;
  }
  result<std::size_t> get(std::uint64_t first, std::size_t count) {
    const auto keys = keys_of(first, count);
    back.assign(count * part_bytes, std::byte{0xee});
    return session->get_into(batch_of(keys), 0, std::nullopt, run_of(back, count));
  }
  std::uint64_t resident(std::uint64_t first, std::size_t count) {
    const auto keys = keys_of(first, count);
    return must(session->match_prefix(batch_of(keys), 0)).resident;
  }
  [[nodiscard]] std::size_t taken_grants() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < memory::session_memory::grants; ++i) {
      const auto word = owner.session().grant(i).word.load();
      if (memory::grant_slot::state_of(word) == memory::grant_slot::taken) ++count;
    }
    return count;
  }
  [[nodiscard]] std::uint32_t device_writes() const { return owner.session().header().device_writes.load(); }

  std::vector<std::byte> back;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(sessions_on_a_device)

#ifndef CENOTE_TSAN  // a fork of a process with threads is more than the thread sanitizer bears
BOOST_AUTO_TEST_CASE(a_forked_child_is_told_so_and_touches_no_device) {
  fixture test;
  must(test.put(0, 2));
  const pid_t child = ::fork();
  if (child == 0) {
    const bool told = code_of(test.put(10, 1)) == error_code::forked && code_of(test.get(0, 2)) == error_code::forked &&
                      code_of(test.session->close()) == error_code::forked;
    test.session.reset();
    ::_exit(told ? 0 : 1);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(WEXITSTATUS(status) == 0);
  BOOST_TEST(must(test.get(0, 2)) == 2U);
  BOOST_TEST((test.back == content(0, 2)));
}
#endif

BOOST_AUTO_TEST_CASE(what_is_put_there_comes_back_and_the_node_knew_of_the_device_before) {
  fixture test;
  BOOST_TEST(test.device_writes() == 1U);
  must(test.put(0, 100));
  BOOST_TEST(test.resident(0, 100) == 100U);
  BOOST_TEST(must(test.get(0, 100)) == 100U);
  BOOST_TEST((test.back == content(0, 100)));
  BOOST_TEST(test.session->home() == test.sim);
  const auto stats = must(test.session->stats());
  BOOST_TEST(stats.slabs_mapped == 1U);
  BOOST_TEST(stats.slabs_registered == 0U);
  BOOST_TEST(stats.pins_in_use == 0U);
  must(test.session->close());
  BOOST_TEST(test.device_writes() == 0U);
}

BOOST_AUTO_TEST_CASE(put_async_copies_before_it_returns) {
  fixture test;
  const auto keys = keys_of(0, 8);
  auto bytes = content(0, 8);
  must(test.session->put_async(batch_of(keys), 0, std::nullopt, run_of(bytes, 8)).status);
  bytes.assign(bytes.size(), std::byte{0});
  BOOST_TEST(must(test.session->flush()) == 8U);
  BOOST_TEST(must(test.get(0, 8)) == 8U);
  BOOST_TEST((test.back == content(0, 8)));
}

BOOST_AUTO_TEST_CASE(parts_are_put_and_got_alone) {
  fixture test(patience, 2);
  const auto keys = keys_of(0, 4);
  auto first = content(0, 4);
  auto second = content(100, 4);
  must(test.session->put(batch_of(keys), 0, 1, run_of(second, 4)).status);
  BOOST_TEST(test.resident(0, 4) == 0U);
  must(test.session->put(batch_of(keys), 0, 0, run_of(first, 4)).status);
  BOOST_TEST(test.resident(0, 4) == 4U);
  std::vector<std::byte> got(second.size());
  BOOST_TEST(must(test.session->get_into(batch_of(keys), 0, 1, run_of(got, 4))) == 4U);
  BOOST_TEST((got == second));
}

BOOST_AUTO_TEST_CASE(blocks_have_addresses_for_streams_of_the_sessions_own_device) {
  fixture test;
  const client::device_stream where{test.sim, must(test.sim->make_stream())};
  const auto keys = keys_of(0, 4);
  const auto bytes = content(0, 4);
  std::vector<client::reserved_block> blocks(4);
  must(test.session->reserve(batch_of(keys), 0, std::nullopt, blocks));
  std::vector<copy_run> runs;
  for (std::size_t i = 0; i < 4; ++i) runs.push_back({blocks[i].data, bytes.data() + i * part_bytes, part_bytes});
  must(test.sim->copy(where.stream, runs));
  must(test.session->use_device(test.sim));  // it does already
  must(test.session->commit_after(blocks, where));
  BOOST_TEST(must(test.session->flush()) == 4U);
  std::vector<client::held_block> held(4);
  BOOST_TEST(must(test.session->acquire(batch_of(keys), 0, held)) == 4U);
  std::vector<std::uint32_t> slots;
  for (const auto& each : held) slots.push_back(each.slot);
  must(test.session->release_after(slots, where));
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).pins_in_use == 0U; }));
  BOOST_TEST((code_of(test.session->use_device(std::make_shared<sim_device>())) == error_code::invalid_argument));
  BOOST_TEST(must(test.get(0, 4)) == 4U);
  BOOST_TEST((test.back == bytes));
}

BOOST_AUTO_TEST_CASE(a_retired_slab_is_unmapped_while_nobody_asks_for_another) {
  fixture test;
  must(test.put(0, 1));
  auto& state = test.owner.versions().slab(testing::local_owner::slab_index)->state;
  state.store(static_cast<std::uint32_t>(memory::slab_state::retired));
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).slabs_mapped == 0U; }));
}

BOOST_AUTO_TEST_CASE(a_put_of_a_device_that_fails_shows_nothing_and_gives_nothing_back) {
  fixture test;
  must(test.put(0, 4));
  test.sim->set_delay(100ms);  // it fails behind the call, which a device that is away would refuse
  test.sim->fail_work();
  BOOST_TEST((code_of(test.put(100, 4)) == error_code::closed));
  BOOST_TEST(test.owner.reader().find(reduce_key(testing::key_of(100), 0)) == 0U);
  BOOST_TEST(test.taken_grants() >= 4U);
  BOOST_TEST(test.node.released() == 0U);
  // A device that is away serves nothing any more, whatever is asked.
  const auto keys = keys_of(0, 4);
  std::vector<std::uint8_t> present(4);
  BOOST_TEST((code_of(test.get(0, 4)) == error_code::closed));
  BOOST_TEST((code_of(test.session->match_prefix(batch_of(keys), 0)) == error_code::closed));
  BOOST_TEST((code_of(test.session->exists(batch_of(keys), 0, present)) == error_code::closed));
  BOOST_TEST((code_of(test.put(200, 1)) == error_code::closed));
  must(test.session->close());
  BOOST_TEST(test.device_writes() == 1U);  // the node sets aside what was being written
}

BOOST_AUTO_TEST_CASE(a_get_of_a_device_that_fails_brings_nothing_and_ends_its_pins) {
  fixture test;
  must(test.put(0, 4));
  test.sim->set_delay(100ms);  // it fails behind the call, which a device that is away would refuse
  test.sim->fail_work();
  BOOST_TEST((code_of(test.get(0, 4)) == error_code::closed));
  BOOST_TEST((test.back == std::vector<std::byte>(4 * part_bytes, std::byte{0xee})));
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).pins_in_use == 0U; }));
  must(test.session->close());
  BOOST_TEST(test.device_writes() == 0U);  // it only read
}

BOOST_AUTO_TEST_CASE(parts_that_a_failed_device_was_to_write_stay_reserved) {
  fixture test(patience, 2);
  const auto keys = keys_of(0, 4);
  auto first = content(0, 4);
  test.sim->set_delay(100ms);  // it fails behind the call, which a device that is away would refuse
  test.sim->fail_work();
  BOOST_TEST((code_of(test.session->put(batch_of(keys), 0, 0, run_of(first, 4)).status) == error_code::closed));
  BOOST_TEST(must(test.session->stats()).reservations == 4U);
  BOOST_TEST(test.node.released() == 0U);
}

BOOST_AUTO_TEST_CASE(a_device_that_the_node_lost_ends_every_call) {
  fixture test;
  must(test.put(0, 4));
  auto& phase = test.owner.session().header().phase;
  phase.store(static_cast<std::uint32_t>(memory::session_phase::device_lost));
  const auto keys = keys_of(0, 4);
  std::vector<std::uint8_t> present(4);
  std::vector<client::held_block> held(4);
  BOOST_TEST((code_of(test.session->match_prefix(batch_of(keys), 0)) == error_code::closed));
  BOOST_TEST((code_of(test.session->exists(batch_of(keys), 0, present)) == error_code::closed));
  BOOST_TEST((code_of(test.session->acquire(batch_of(keys), 0, held)) == error_code::closed));
  BOOST_TEST((code_of(test.get(0, 4)) == error_code::closed));
  BOOST_TEST((code_of(test.session->barrier()) == error_code::closed));
  const auto said = test.put(100, 1);
  BOOST_REQUIRE(!said);
  BOOST_TEST(said.error().message() == "the device of this session failed; attach to host memory");
  must(test.session->close());
}

BOOST_AUTO_TEST_CASE(a_put_that_ends_late_keeps_its_blocks_until_then_and_gives_them_back) {
  fixture test(300ms);
  must(test.put(0, 1));
  test.sim->set_delay(900ms);
  BOOST_TEST((code_of(test.put(100, 4)) == error_code::deadline_exceeded));
  BOOST_TEST(test.session->device_works());
  BOOST_TEST(test.taken_grants() == 4U);
  BOOST_TEST(test.node.released() == 0U);
  must(test.session->close());
  BOOST_TEST(!test.session->device_works());
  BOOST_TEST(test.comes([&] { return test.node.released() == 4U; }));  // posted: the node's thread counts them
  BOOST_TEST(test.device_writes() == 0U);
}

BOOST_AUTO_TEST_CASE(a_get_that_ends_late_keeps_its_pins_until_then_and_changes_nothing_of_the_callers) {
  fixture test(300ms);
  must(test.put(0, 4));
  test.sim->set_delay(900ms);
  BOOST_TEST((code_of(test.get(0, 4)) == error_code::deadline_exceeded));
  BOOST_TEST(must(test.session->stats()).pins_in_use == 4U);
  const std::uint32_t slot = 0;
  BOOST_TEST((code_of(test.session->release({&slot, 1})) == error_code::invalid_argument));
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).pins_in_use == 0U; }));
  BOOST_TEST(!test.session->device_works());
  BOOST_TEST((test.back == std::vector<std::byte>(4 * part_bytes, std::byte{0xee})));
  test.sim->set_delay(0us);
  BOOST_TEST(must(test.get(0, 4)) == 4U);
}

BOOST_AUTO_TEST_CASE(calls_whose_event_is_lost_end_at_their_deadline_and_a_close_gives_nothing_back) {
  fixture test(300ms);
  must(test.put(0, 4));
  test.sim->lose_next_event();
  BOOST_TEST((code_of(test.put(100, 4)) == error_code::deadline_exceeded));
  test.sim->lose_next_event();
  BOOST_TEST((code_of(test.get(0, 4)) == error_code::deadline_exceeded));
  BOOST_TEST(test.taken_grants() == 4U);
  BOOST_TEST(must(test.session->stats()).pins_in_use == 4U);
  BOOST_TEST(must(test.get(0, 4)) == 4U);  // through another stage
  BOOST_TEST((test.back == content(0, 4)));
  BOOST_TEST((code_of(test.session->close()) == error_code::deadline_exceeded));
  BOOST_TEST(test.node.released() == 0U);
  BOOST_TEST(test.taken_grants() == 4U);
  BOOST_TEST(test.device_writes() == 1U);
  for (std::uint32_t slot = 0; slot < 4; ++slot) BOOST_TEST(test.owner.session().pin(slot).load() != 0U);
  BOOST_TEST(test.session->device_works());  // so that its memory stays
}

BOOST_AUTO_TEST_CASE(copies_of_which_nobody_tells_the_end_keep_blocks_pins_and_memory_for_good) {
  const auto nodes = std::make_shared<sim_device>();
  const auto own = std::make_shared<testing::silent_device>();
  testing::session_fixture test(128, 64, 1, patience, "/nonexistent/cenote.sock", nodes.get(), own);
  const auto keys = keys_of(0, 4);
  const auto others = keys_of(100, 4);
  auto bytes = content(0, 4);
  must(test.session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, 4)).status);
  own->is_silent = true;
  BOOST_TEST(
      (code_of(test.session->put(batch_of(others), 0, std::nullopt, run_of(bytes, 4)).status) == error_code::system));
  std::vector<std::byte> got(bytes.size());
  BOOST_TEST((code_of(test.session->get_into(batch_of(keys), 0, std::nullopt, run_of(got, 4))) == error_code::system));
  BOOST_TEST((got == std::vector<std::byte>(bytes.size())));
  BOOST_TEST(test.node.released() == 0U);
  BOOST_TEST(must(test.session->stats()).pins_in_use == 4U);
  must(test.session->close());
  BOOST_TEST(test.session->device_works());
  BOOST_TEST(test.owner.session().header().device_writes.load() == 1U);
}

BOOST_AUTO_TEST_CASE(an_attach_says_what_is_wrong_with_its_device_before_it_asks_a_node) {
  client::session_options options;
  options.socket = "/nonexistent/cenote.sock";
  options.deadline = 10ms;
  options.spec.id = "test";
  options.spec.tokens_per_block = 16;
  options.spec.groups.push_back({.name = "default", .parts = {{"rank0", part_bytes}, {"rank1", part_bytes}}});
  const auto attach = [&](std::string device, std::uint32_t part) {
    auto given = options;
    given.device = std::move(device);
    given.part = part;
    return code_of(client::session::attach(std::move(given)));
  };
  BOOST_TEST((attach("", 1) == error_code::invalid_argument));
  BOOST_TEST((attach("gpu", 0) == error_code::invalid_argument));
  BOOST_TEST((attach("sim:0", 2) == error_code::invalid_argument));
  BOOST_TEST((attach("sim:0", 1) == error_code::not_running));
}

BOOST_AUTO_TEST_CASE(an_attach_sends_the_whole_spec_and_the_devices_name_without_what_is_the_clients_own) {
  std::string folder = (std::filesystem::temp_directory_path() / "cenote-test-XXXXXX").native();
  BOOST_REQUIRE(::mkdtemp(folder.data()) != nullptr);
  auto listener = must(local::listen_at(folder + "/node.sock"));
  client::session_options options;
  options.socket = folder + "/node.sock";
  options.deadline = patience;
  options.spec.id = "test";
  options.spec.tokens_per_block = 16;
  options.spec.groups.push_back({.name = "default", .parts = {{"rank0", part_bytes}, {"rank1", part_bytes}}});
  options.device = "sim:007,lose=1000";
  options.part = 1;
  error_code said = error_code::ok;
  std::thread attaching([&] { said = code_of(client::session::attach(options)); });
  unique_fd caller;
  while (!caller) {
    if (auto came = must(local::accept_one(listener.get()))) caller = std::move(*came);
    std::this_thread::yield();
  }
  const auto until = std::chrono::steady_clock::now() + patience;
  const auto asked = must(local::receive_frame(caller.get(), until));
  const auto request = must(local::decode_attach(asked.payload, asked.header.minor));
  const error why(error_code::unsupported, "no blocks are kept there");
  must(local::send_frame(caller.get(), local::reply_to(asked.header, local::frame_type::failure),
                         local::encode_failure(why), {}, until));
  attaching.join();
  std::filesystem::remove_all(folder);
  BOOST_TEST((said == error_code::unsupported));
  BOOST_TEST(request.device == "sim:7");
  BOOST_TEST(request.part == 1U);
  BOOST_TEST(request.spec.id == "test");
  BOOST_TEST(request.spec.groups.front().parts.size() == 2U);
}

BOOST_AUTO_TEST_CASE(the_c_abi_hands_out_the_device_of_a_session_and_no_other) {
  fixture test;
  cenote_session* on_device = nullptr;
  cenote_device* own = nullptr;
  cenote_device* same = nullptr;
  cenote_stream* stream = nullptr;
  BOOST_TEST(c_api::hand_out_session(&on_device, std::move(test.session)) == CENOTE_OK);
  BOOST_TEST(cenote_session_device(on_device, &own) == CENOTE_OK);
  BOOST_TEST(c_api::handle_use<cenote_device>(own)->impl == test.sim);
  BOOST_TEST(cenote_stream_open(own, &stream) == CENOTE_OK);
  BOOST_TEST(cenote_use_device(on_device, own) == CENOTE_OK);
  BOOST_TEST(cenote_release_after(on_device, nullptr, 0, stream) == CENOTE_OK);
  cenote_device_free(own);  // what still needs it keeps it
  BOOST_TEST(cenote_stream_open(own, &stream) == CENOTE_CLOSED);
  BOOST_TEST(cenote_session_device(on_device, &same) == CENOTE_OK);
  cenote_device_free(same);
  cenote_stream_free(stream);
  cenote_free(on_device);

  testing::session_fixture host;
  cenote_session* on_host = nullptr;
  BOOST_TEST(c_api::hand_out_session(&on_host, std::move(host.session)) == CENOTE_OK);
  BOOST_TEST(cenote_session_device(on_host, &own) == CENOTE_INVALID_ARGUMENT);
  BOOST_TEST(own == nullptr);
  cenote_free(on_host);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace session_on_device_test
