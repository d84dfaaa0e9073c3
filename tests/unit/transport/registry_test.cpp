// The registry, its packets, and the worker's side of the link against a keeper played by the test.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "core/byte_io.hpp"
#include "transport/local/keeper_link.hpp"

namespace {

using namespace std::chrono_literals;
using namespace cenote;
using namespace cenote::local;

std::vector<std::byte> meta_of(std::size_t size) {
  return std::vector<std::byte>(size, std::byte{7});
}

registry_entry entry_of(entry_kind kind, std::uint64_t id, std::size_t fds = 1) {
  registry_entry entry{kind, id, meta_of(5), {}};
  for (std::size_t i = 0; i < fds; ++i) entry.fds.emplace_back(::memfd_create("test", MFD_CLOEXEC));
  return entry;
}

/// For the threads of a test: Boost.Test may be called from one thread only.
void must(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

link_packet next(int fd) {
  for (;;) {
    must(detail::wait_for(fd, POLLIN, std::chrono::steady_clock::now() + 60s).has_value(), "no packet came");
    auto got = try_receive_link(fd);
    must(got.has_value(), "a packet is malformed");
    if (*got) return std::move(**got);
  }
}

void reply(int fd, const link_header& to, link_message message, std::span<const std::byte> payload = {}) {
  link_header header;
  header.message = message;
  header.sequence = to.sequence;
  must(*try_send_link(fd, header, payload, {}), "no room for a packet");
}

void hand_over(int fd, std::uint64_t epoch, const registry& entries, std::uint32_t count) {
  const unique_fd listener(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  byte_writer begin;
  begin.put(epoch);
  begin.put(std::int64_t{1'700'000'000'000'000'000});
  begin.put(std::uint32_t{3});
  begin.put(count);
  link_header header;
  header.message = link_message::handover;
  const std::array fds{listener.get()};
  BOOST_REQUIRE(*try_send_link(fd, header, begin.bytes(), fds));
  for (const auto& [key, entry] : entries.entries()) {
    header.message = link_message::entry;
    header.kind = entry.kind;
    header.id = entry.id;
    BOOST_REQUIRE(*try_send_link(fd, header, entry.meta, numbers_of(entry.fds)));
  }
  header.message = link_message::handover_end;
  BOOST_REQUIRE(*try_send_link(fd, header, {}, {}));
}

struct linked {
  linked() {
    auto ends = make_link();
    BOOST_REQUIRE(ends);
    keeper = std::move(ends->first);
    worker.emplace(std::move(ends->second));
  }
  unique_fd keeper;
  std::optional<keeper_link> worker;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(the_registry)

BOOST_AUTO_TEST_CASE(replaces_an_entry_of_the_same_kind_and_id_and_forgets_a_dropped_one) {
  registry entries;
  BOOST_TEST(entries.put(entry_of(entry_kind::slab, 1, 2)).has_value());
  BOOST_TEST(entries.put(entry_of(entry_kind::session, 1)).has_value());
  BOOST_TEST(entries.put(entry_of(entry_kind::slab, 1, 3)).has_value());
  BOOST_TEST(entries.size() == 2U);
  BOOST_TEST((entries.entries().at({entry_kind::slab, 1}).fds.size()) == 3U);
  BOOST_TEST(entries.drop(entry_kind::slab, 1));
  BOOST_TEST(!entries.drop(entry_kind::slab, 1));
  BOOST_TEST(entries.size() == 1U);
}

BOOST_AUTO_TEST_CASE(refuses_what_exceeds_its_bounds) {
  registry entries;
  BOOST_TEST(!entries.put({entry_kind::slab, 1, meta_of(max_entry_meta + 1), {}}));
  BOOST_TEST(!entries.put(entry_of(entry_kind::slab, 1, max_entry_fds + 1)));
  BOOST_TEST(!entries.put(entry_of(entry_kind{}, 1)));
  for (std::uint64_t id = 0; id < max_entries; ++id) BOOST_REQUIRE(entries.put({entry_kind::slab, id, {}, {}}));
  BOOST_TEST(!entries.put({entry_kind::slab, max_entries, {}, {}}));
  BOOST_TEST(entries.put({entry_kind::slab, 5, {}, {}}).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(the_keeper_link)

BOOST_AUTO_TEST_CASE(hands_over_epoch_listener_and_entries_in_order) {
  linked link;
  registry entries;
  BOOST_REQUIRE(entries.put(entry_of(entry_kind::session, 9, 3)));
  BOOST_REQUIRE(entries.put(entry_of(entry_kind::records, 1)));
  BOOST_REQUIRE(entries.put(entry_of(entry_kind::slab, 4)));
  hand_over(link.keeper.get(), 12, entries, 3);
  const auto got = link.worker->receive_handover();
  BOOST_REQUIRE(got);
  BOOST_TEST(got->epoch == 12U);
  BOOST_TEST(got->restarts == 3U);
  BOOST_TEST(got->node_started.time_since_epoch().count() > 0);
  BOOST_TEST(got->listener.get() >= 0);
  BOOST_REQUIRE(got->entries.size() == 3U);
  BOOST_TEST((got->entries[0].kind == entry_kind::records));
  BOOST_TEST((got->entries[1].kind == entry_kind::slab));
  BOOST_TEST((got->entries[2].kind == entry_kind::session));
  BOOST_TEST(got->entries[2].id == 9U);
  BOOST_TEST(got->entries[2].fds.size() == 3U);
  BOOST_TEST((got->entries[2].meta == meta_of(5)));
}

BOOST_AUTO_TEST_CASE(notices_a_handover_with_missing_entries) {
  linked link;
  hand_over(link.keeper.get(), 1, {}, 2);
  const auto got = link.worker->receive_handover();
  BOOST_REQUIRE(!got);
  BOOST_TEST((got.error().code() == error_code::malformed));
}

BOOST_AUTO_TEST_CASE(puts_an_entry_and_returns_when_it_is_acknowledged) {
  linked link;
  link_packet put;
  std::jthread keeper([&] {
    put = next(link.keeper.get());
    reply(link.keeper.get(), put.header, link_message::ack);
  });
  BOOST_TEST(link.worker->put(entry_of(entry_kind::slab, 77, 2)).has_value());
  keeper.join();
  BOOST_TEST((put.header.message == link_message::put));
  BOOST_TEST(put.header.id == 77U);
  BOOST_TEST(put.fds.size() == 2U);
  BOOST_TEST((put.payload == meta_of(5)));
}

BOOST_AUTO_TEST_CASE(takes_the_listening_socket_that_is_another_one_and_asks_with_its_number_from_then_on) {
  linked link;
  const unique_fd listener(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  std::jthread keeper([&] {
    for (const std::uint64_t known : {0U, 0U, 7U}) {
      const auto asked = next(link.keeper.get());
      must(asked.header.message == link_message::ask_listener, "another message came");
      must(asked.header.id == known, "another number came");
      const bool renews = asked.header.sequence == 2;
      link_header header;
      header.message = link_message::ack;
      header.sequence = asked.header.sequence;
      header.id = renews ? 7 : known;
      const std::array fds{listener.get()};
      must(*try_send_link(link.keeper.get(), header, {}, std::span(fds).first(renews ? 1 : 0)), "not sent");
    }
  });
  for (const bool renews : {false, true, false}) {
    const auto renewed = link.worker->renewed_listener();
    BOOST_REQUIRE(renewed.has_value());
    BOOST_TEST(renewed->has_value() == renews);
  }
}

BOOST_AUTO_TEST_CASE(passes_the_keepers_refusal_on) {
  linked link;
  std::jthread keeper([&] {
    const auto asked = next(link.keeper.get());
    must(asked.header.message == link_message::ask_upgrade, "another message came");
    reply(link.keeper.get(), asked.header, link_message::refused,
          encode_failure({error_code::unsupported, "no binary"}));
  });
  const auto done = link.worker->ask_upgrade();
  BOOST_REQUIRE(!done);
  BOOST_TEST((done.error().code() == error_code::unsupported));
  BOOST_TEST(done.error().message() == "no binary");
}

BOOST_AUTO_TEST_CASE(ignores_the_late_answer_to_an_earlier_call) {
  linked link;
  BOOST_TEST((link.worker->drop(entry_kind::slab, 1, 10ms).error().code() == error_code::deadline_exceeded));
  std::jthread keeper([&] {
    const auto first = next(link.keeper.get());
    reply(link.keeper.get(), first.header, link_message::refused, encode_failure({error_code::internal, "late"}));
    const auto second = next(link.keeper.get());
    reply(link.keeper.get(), second.header, link_message::ack);
  });
  BOOST_TEST(link.worker->drop(entry_kind::slab, 2).has_value());
}

BOOST_AUTO_TEST_CASE(refuses_entries_that_no_packet_holds) {
  linked link;
  const auto done = link.worker->put(entry_kind::slab, 1, meta_of(max_entry_meta + 1), {});
  BOOST_REQUIRE(!done);
  BOOST_TEST((done.error().code() == error_code::limit_exceeded));
}

BOOST_AUTO_TEST_CASE(says_that_the_node_restarts_when_the_keeper_is_gone) {
  linked link;
  link.keeper.reset();
  BOOST_TEST((link.worker->ready().error().code() == error_code::node_restarting));
  BOOST_TEST((link.worker->receive_handover().error().code() == error_code::node_restarting));
}

BOOST_AUTO_TEST_CASE(serves_many_threads) {
  linked link;
  constexpr int calls = 200;
  std::jthread keeper([&] {
    for (int i = 0; i < 4 * calls; ++i) reply(link.keeper.get(), next(link.keeper.get()).header, link_message::ack);
  });
  std::atomic<int> done = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < calls; ++i) done += link.worker->drop(entry_kind::slab, 1).has_value() ? 1 : 0;
      });
    }
  }
  BOOST_TEST(done == 4 * calls);
}

BOOST_AUTO_TEST_CASE(refuses_packets_that_are_malformed) {
  auto ends = make_link();
  BOOST_REQUIRE(ends);
  auto& [left, right] = *ends;
  link_header header;
  header.magic = 1;
  BOOST_REQUIRE(*try_send_link(left.get(), header, {}, {}));
  BOOST_TEST((try_receive_link(right.get()).error().code() == error_code::malformed));
  header = {};
  header.version = link_version + 1;
  BOOST_REQUIRE(*try_send_link(left.get(), header, {}, {}));
  BOOST_TEST((try_receive_link(right.get()).error().code() == error_code::layout_mismatch));
  header = {};
  header.size = 9;
  BOOST_REQUIRE(::send(left.get(), &header, sizeof header, 0) == sizeof header);
  BOOST_TEST((try_receive_link(right.get()).error().code() == error_code::malformed));
  header = {};
  header.fds = 1;
  BOOST_REQUIRE(::send(left.get(), &header, sizeof header, 0) == sizeof header);
  BOOST_TEST((try_receive_link(right.get()).error().code() == error_code::limit_exceeded));
}

BOOST_AUTO_TEST_SUITE_END()
