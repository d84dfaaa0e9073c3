#include "device/sim.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <thread>

#include "tests/unit/device/engine_tensors.hpp"

namespace cenote::sim_test {

namespace {

using namespace std::chrono_literals;
using bytes = std::vector<std::byte>;

constexpr auto limit = 60s;
constexpr std::size_t size = 64 << 10;

bytes filled(int value, std::size_t count = size) {
  return bytes(count, static_cast<std::byte>(value));
}

/// A device with a stream.
struct fixture {
  sim_device sim;
  stream_ref stream = sim.make_stream().value();

  void copy(const stream_ref& on, bytes& to, const bytes& from) {
    const copy_run run{to.data(), from.data(), from.size()};
    BOOST_REQUIRE(sim.copy(on, {&run, 1}));
  }
  [[nodiscard]] event_ref record(const stream_ref& on) { return sim.record(on).value(); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(sim_devices, fixture)

BOOST_AUTO_TEST_CASE(bytes_are_there_when_the_event_is_done) {
  const bytes from = filled(7);
  bytes to = filled(0);
  copy(stream, to, from);
  const auto event = record(stream);
  while (sim.look(event) == event_state::pending) std::this_thread::yield();
  BOOST_TEST((sim.look(event) == event_state::done));
  BOOST_TEST((to == from));
}

BOOST_AUTO_TEST_CASE(giving_work_waits_for_nothing) {
  sim.set_delay(100ms);
  const bytes from = filled(7);
  bytes to = filled(0);
  copy(stream, to, from);
  const auto event = record(stream);
  BOOST_TEST((sim.look(event) == event_state::pending));
  BOOST_TEST(await(sim, event, limit).has_value());
  BOOST_TEST((to == from));
}

BOOST_AUTO_TEST_CASE(a_stream_works_in_order) {
  std::vector<bytes> values;
  for (int i = 0; i <= 64; ++i) values.push_back(filled(i));
  bytes middle = filled(0);
  bytes last = filled(0);
  for (const bytes& value : values) {
    copy(stream, middle, value);
    copy(stream, last, middle);
  }
  BOOST_TEST(await(sim, record(stream), limit).has_value());
  BOOST_TEST((last == values.back()));
}

BOOST_AUTO_TEST_CASE(what_is_given_after_a_wait_begins_after_the_event) {
  const auto second = sim.make_stream().value();
  const bytes from = filled(9);
  bytes middle = filled(0);
  bytes last = filled(0);
  sim.set_delay(20ms);
  copy(stream, middle, from);
  BOOST_TEST(sim.wait(second, record(stream)).has_value());
  sim.set_delay(0ms);
  copy(second, last, middle);
  BOOST_TEST(await(sim, record(second), limit).has_value());
  BOOST_TEST((last == from));
}

BOOST_AUTO_TEST_CASE(a_callback_comes_once_from_another_thread_also_for_an_event_that_is_over) {
  std::atomic<int> calls{0};
  std::atomic<bool> elsewhere{false};
  const auto event = record(stream);
  BOOST_TEST(await(sim, event, limit).has_value());
  sim.when(event, [&, here = std::this_thread::get_id()](const result<void>& how) {
    elsewhere = std::this_thread::get_id() != here && how.has_value();
    ++calls;
  });
  BOOST_TEST(await(sim, event, limit).has_value());  // callbacks have one thread
  BOOST_TEST(calls == 1);
  BOOST_TEST(elsewhere.load());
}

BOOST_AUTO_TEST_CASE(memory_is_shared_by_its_descriptor_and_outlives_who_made_it) {
  auto made = sim.make(size + 1);
  BOOST_REQUIRE(made);
  BOOST_TEST(made->bytes >= size + 1);
  std::ranges::fill(made->span(), std::byte{5});
  sim_device other;
  auto seen = other.map(std::move(made->descriptor), made->bytes);
  BOOST_REQUIRE(seen);
  made->mapping.reset();
  BOOST_TEST(std::ranges::all_of(seen->span(), [](std::byte each) { return each == std::byte{5}; }));
  BOOST_TEST(!seen->descriptor);
}

BOOST_AUTO_TEST_CASE(a_descriptor_of_less_memory_is_refused) {
  auto made = sim.make(size);
  BOOST_REQUIRE(made);
  BOOST_TEST(!sim.map(std::move(made->descriptor), 2 * size));
  BOOST_TEST(!sim.make(0));
}

BOOST_AUTO_TEST_CASE(out_of_memory_is_said_and_passes) {
  sim.set_out_of_memory(true);
  const auto refused = sim.make(size);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code() == error_code::no_space));
  BOOST_TEST((sim.state() == standing::ready));
  sim.set_out_of_memory(false);
  BOOST_TEST(sim.make(size).has_value());
}

BOOST_AUTO_TEST_CASE(host_memory_is_registered_once) {
  bytes memory = filled(0);
  BOOST_TEST(sim.register_host(memory).has_value());
  BOOST_TEST(sim.registered_bytes() == size);
  BOOST_TEST(!sim.register_host(std::span(memory).first(1)));
  BOOST_TEST(!sim.register_host(std::span(memory).last(1)));
  sim.unregister_host(std::span(memory).first(1));  // not what was registered
  BOOST_TEST(sim.registered_bytes() == size);
  sim.unregister_host(memory);
  BOOST_TEST(sim.registered_bytes() == 0U);
  sim.set_registration_refused(true);
  const auto refused = sim.register_host(memory);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code() == error_code::unsupported));
}

BOOST_AUTO_TEST_CASE(after_an_error_no_event_is_done_and_nothing_is_accepted) {
  const bytes from = filled(7);
  bytes to = filled(0);
  bytes untouched = filled(0);
  const auto other = sim.make_stream().value();
  sim.fail_work();
  sim.set_delay(20ms);
  copy(stream, to, from);
  copy(stream, untouched, from);
  const auto event = record(stream);
  const auto failed = await(sim, event, limit);
  BOOST_REQUIRE(!failed);
  BOOST_TEST((failed.error().code() == error_code::system));
  BOOST_TEST((sim.look(event) == event_state::failed));
  BOOST_TEST((sim.state() == standing::away));
  BOOST_TEST((untouched == filled(0)));
  const copy_run run{to.data(), from.data(), size};
  BOOST_TEST((sim.copy(other, {&run, 1}).error().code() == error_code::closed));
  BOOST_TEST(!sim.record(other));
  BOOST_TEST(!sim.wait(other, event));
  BOOST_TEST(!sim.make(size));
  BOOST_TEST(!sim.make_stream());
}

BOOST_AUTO_TEST_CASE(an_event_that_is_lost_stays_pending_and_what_waits_for_it_never_runs) {
  std::atomic<int> closed{0};
  const bytes from = filled(7);
  bytes to = filled(0);
  event_ref lost;
  {
    sim_device own;
    const auto first = own.make_stream().value();
    const auto second = own.make_stream().value();
    own.lose_next_event();
    lost = own.record(first).value();
    const auto next = own.record(first).value();
    BOOST_TEST(await(own, next, limit).has_value());
    BOOST_TEST(!await(own, lost, 1ms));
    BOOST_TEST((own.look(lost) == event_state::pending));
    BOOST_TEST(own.wait(second, lost).has_value());
    const copy_run run{to.data(), from.data(), size};
    BOOST_TEST(own.copy(second, {&run, 1}).has_value());
    const auto never = own.record(second).value();
    for (const auto& each : {lost, never}) {
      own.when(each, [&](const result<void>& how) { closed += how.error().code() == error_code::closed ? 1 : 0; });
    }
  }
  BOOST_TEST(closed == 2);
  BOOST_TEST((to == filled(0)));
}

BOOST_AUTO_TEST_CASE(a_stream_or_event_that_is_dropped_early_costs_no_work) {
  const bytes from = filled(7);
  bytes to = filled(0);
  auto brief = sim.make_stream().value();
  sim.set_delay(5ms);
  copy(brief, to, from);
  (void)record(brief);
  const auto event = record(brief);
  brief.reset();
  BOOST_TEST(await(sim, event, limit).has_value());
  BOOST_TEST((to == from));
}

BOOST_AUTO_TEST_CASE(in_a_child_everything_is_refused_and_dropping_it_does_not_hang) {
  auto own = std::make_unique<sim_device>();
  auto left = own->make_stream().value();
  const auto event = own->record(left).value();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);  // it hangs
    const auto refused = [](const auto& said) { return !said && said.error().code() == error_code::forked; };
    const bool good = refused(own->record(left)) && refused(own->make(size)) && refused(own->wait(left, event)) &&
                      refused(await(*own, event, 1s)) && own->state() == standing::away;
    left.reset();
    own.reset();
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST(status == 0);
  BOOST_TEST(await(*own, own->record(left).value(), limit).has_value());
}

BOOST_AUTO_TEST_CASE(devices_are_opened_by_name) {
  BOOST_TEST(device::open("sim:0").has_value());
  BOOST_TEST(device::open("sim:0,fail=2,lose=3,mib=64").has_value());
  for (const auto* wrong :
       {"", "sim", "sim:", "sim:x", "tpu:0", "cuda:", "cuda:x", "sim:0,", "sim:0,fail=0", "sim:0,slow=1"}) {
    const auto refused = device::open(wrong);
    BOOST_TEST(!refused, wrong);
  }
}

BOOST_AUTO_TEST_CASE(an_event_is_lost_by_its_number) {
  const auto opened = device::open("sim:0,lose=3").value();
  const auto own = opened->make_stream().value();
  BOOST_TEST(await(*opened, opened->record(own).value(), limit).has_value());
  BOOST_TEST(await(*opened, opened->record(own).value(), limit).has_value());
  const auto lost = opened->record(own).value();
  BOOST_TEST(await(*opened, opened->record(own).value(), limit).has_value());
  BOOST_TEST((opened->look(lost) == event_state::pending));
}

BOOST_AUTO_TEST_CASE(memory_that_is_used_up_is_refused_and_is_there_again_when_its_last_mapping_is_gone) {
  constexpr std::uint64_t mib = 1 << 20;
  auto opened = device::open("sim:0,mib=2").value();
  auto first = opened->make(mib).value();
  auto second = opened->make(mib).value();
  const auto refused = opened->make(1);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code() == error_code::no_space));
  BOOST_TEST(refused.error().message() == "the simulated device has 2097152 bytes of memory, 0 of them free, not 4096");
  auto same = opened->map(std::move(second.descriptor), mib).value();  // counted where it was made
  auto another = second.mapping;
  second.mapping.reset();
  BOOST_TEST(!opened->make(1));
  another.reset();
  BOOST_TEST(opened->make(mib).has_value());
  opened.reset();
  first.mapping.reset();  // memory may outlive its device
}

BOOST_AUTO_TEST_CASE(streams_and_events_may_outlive_their_device) {
  auto own = std::make_unique<sim_device>();
  const auto left = own->make_stream().value();
  const auto event = own->record(left).value();
  own.reset();
  BOOST_TEST(left.use_count() == 1);
}

BOOST_AUTO_TEST_CASE(an_engines_own_stream_is_the_same_stream) {
  const auto same = sim.outside(stream->native());
  BOOST_REQUIRE(same);
  BOOST_TEST((*same)->native() == stream->native());
  int other = 0;
  BOOST_TEST(!sim.outside(&other));
}

BOOST_AUTO_TEST_CASE(a_page_goes_to_its_block_and_comes_back_layer_by_layer) {
  std::mt19937_64 random(1);
  testing::engine_tensors engine(kv_layout::kv_first, {4, 6, 16, 2, 32, 2}, false, random);
  const auto layout = paged_layout::of(engine.kind, engine.shape, engine.views()).value();
  const auto before = engine.memory;
  const std::vector<std::uint64_t> pages{5, 0, 3};
  bytes cache(pages.size() * layout.block_bytes());
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i < pages.size(); ++i) blocks.push_back(cache.data() + i * layout.block_bytes());
  for (std::size_t layer = 0; layer < layout.layers(); ++layer) {
    BOOST_TEST(sim.gather(stream, layout, {pages, blocks}, {layer, 1}).has_value());
  }
  BOOST_TEST(await(sim, record(stream), limit).has_value());
  for (std::size_t i = 0; i < pages.size(); ++i) {
    engine.each_byte(pages[i], layout.all_layers(), [&](std::byte& in_page, std::uint64_t offset) {
      if (blocks[i][offset] != in_page) BOOST_FAIL("page " << pages[i] << ", byte " << offset);
      in_page = {};
    });
  }
  BOOST_TEST(sim.scatter(stream, layout, {pages, blocks}, layout.all_layers()).has_value());
  BOOST_TEST(await(sim, record(stream), limit).has_value());
  BOOST_TEST((engine.memory == before));
  const std::vector<std::uint64_t> beyond{6, 0, 3};
  BOOST_TEST(!sim.gather(stream, layout, {beyond, blocks}, {0, 1}));
  BOOST_TEST(!sim.scatter(stream, layout, {pages, blocks}, {4, 1}));
}

BOOST_AUTO_TEST_SUITE_END()

#if defined(__SANITIZE_THREAD__)
BOOST_AUTO_TEST_SUITE(sim_devices_and_the_thread_sanitizer)

namespace {

/// What the sanitizer says of a process that does this.
template <class Work>
int status_of(const Work& work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

/// Copies, gives the stream more work meanwhile, and reads: after the event or too early.
void read_a_copy(bool early) {
  sim_device own;
  const auto on = own.make_stream().value();
  const bytes from = filled(7);
  bytes to = filled(0);
  const copy_run run{to.data(), from.data(), size};
  (void)own.copy(on, {&run, 1});
  const auto event = own.record(on).value();
  const auto more = own.record(on).value();  // kept: to give up an event that is done orders what follows, too
  if (!early) (void)await(own, event, limit);
  const volatile std::byte& last = to[size - 1];
  while (last != from[0]) std::this_thread::yield();  // too early: what arrives is seen without an event
  (void)await(own, more, limit);
}

}  // namespace

BOOST_AUTO_TEST_CASE(reading_before_the_event_is_done_is_a_data_race) {
  BOOST_TEST(status_of([] { read_a_copy(false); }) == 0);
  BOOST_TEST(status_of([] { read_a_copy(true); }) == 66);  // exitcode of TSAN_OPTIONS
}

BOOST_AUTO_TEST_SUITE_END()
#endif

}  // namespace cenote::sim_test
