#include "tiers/blocks/provisioner.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "core/units.hpp"

namespace cenote::blocks::provisioner_test {

namespace {

slab_description slab_of(std::uint32_t index, std::uint64_t bytes) {
  return {
      .instance = 1, .group = 0, .index = index, .count = 1, .stride = bytes, .first_record = 0, .first_version = 0};
}

// A provisioner, and what it said.
struct provisioner_world {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<slab_outcome> outcomes;
  std::map<std::byte*, std::uint64_t> pinned;  // pieces
  std::uint64_t unpins = 0;
  std::vector<std::uint32_t> forgotten;  // instances
  bool keeps = true;
  bool throws = false;
  provisioner made{{.populate = true, .huge_pages = false, .numa_node = -1},
                   [this](const slab_description&, const unique_fd&, std::uint64_t) -> result<void> {
                     if (throws) throw std::bad_alloc();
                     if (!keeps) return fail(error_code::system, "the keeper is gone");
                     return {};
                   },
                   [](const slab_description&) { return result<void>(); },
                   [this](slab_outcome outcome) {
                     const std::lock_guard lock(mutex);
                     outcomes.push_back(std::move(outcome));
                     changed.notify_all();
                   },
                   {.pin =
                        [this](std::span<std::byte> piece) {
                          const std::lock_guard lock(mutex);
                          pinned.emplace(piece.data(), piece.size());
                          changed.notify_all();
                        },
                    .unpin =
                        [this](std::span<std::byte> memory) {
                          const std::lock_guard lock(mutex);
                          std::erase_if(pinned, [&](const auto& piece) {
                            return piece.first >= memory.data() && piece.first < memory.data() + memory.size();
                          });
                          ++unpins;
                        }},
                   [this](std::uint32_t instance) {
                     const std::lock_guard lock(mutex);
                     forgotten.push_back(instance);
                     return result<void>();
                   }};

  std::uint64_t pinned_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [first, size] : pinned) bytes += size;
    return bytes;
  }
  template <typename Condition>
  void wait(Condition condition) {
    std::unique_lock lock(mutex);
    changed.wait(lock, condition);
  }
  slab_outcome create(const slab_description& slab) {
    std::vector<slab_request> requests;
    requests.push_back({slab_request::kind::create, slab, {}});
    made.submit(std::move(requests));
    return next();
  }
  slab_outcome drop(slab_outcome slab) {
    std::vector<slab_request> requests;
    requests.push_back({slab_request::kind::drop, slab.slab, std::move(slab.memory)});
    made.submit(std::move(requests));
    return next();
  }
  slab_outcome next() {
    wait([this] { return !outcomes.empty(); });
    const std::lock_guard lock(mutex);
    slab_outcome outcome = std::move(outcomes.front());
    outcomes.clear();
    return outcome;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(provisioner_suite, provisioner_world)

BOOST_AUTO_TEST_CASE(all_of_a_slab_is_pinned_in_pieces_once_it_is_filled) {
  for (const std::uint64_t bytes : {4 * MiB, 80 * MiB}) {
    const std::uint64_t before = pinned_bytes();
    const auto slab = create(slab_of(1, bytes));
    BOOST_REQUIRE(slab.status.has_value());
    wait([&] { return pinned_bytes() == before + slab.memory.size(); });
    const std::lock_guard lock(mutex);
    BOOST_TEST(pinned.contains(slab.memory.data()));
  }
  BOOST_TEST(pinned.size() == 4U);
}

BOOST_AUTO_TEST_CASE(nothing_of_a_slab_is_pinned_when_it_has_gone) {
  auto slab = create(slab_of(1, 80 * MiB));  // filled and pinned, or not yet
  BOOST_TEST(drop(std::move(slab)).status.has_value());
  slab = create(slab_of(2, 4 * MiB));
  wait([&] { return pinned_bytes() == slab.memory.size(); });
  BOOST_TEST(drop(std::move(slab)).status.has_value());
  BOOST_TEST(pinned_bytes() == 0U);
  BOOST_TEST(unpins == 2U);
}

BOOST_AUTO_TEST_CASE(memory_of_an_earlier_worker_is_pinned_too) {
  std::vector<std::byte> memory(40 * MiB);
  made.adopt(memory);
  wait([&] { return pinned_bytes() == memory.size(); });
  BOOST_TEST(pinned.size() == 2U);
}

BOOST_AUTO_TEST_CASE(of_an_instance_that_is_given_up_only_the_mark_is_left_in_whatever_mapping) {
  slab_request request{.what = slab_request::kind::forget, .slab = {.instance = 7}};
  constexpr std::size_t looked_at = 4 * memory::page_bytes;
  std::vector<memory::segment> clients;
  request.index = *memory::shared_file::create("test", 4 * memory::page_bytes);
  auto versions = memory::shared_file::create("test", memory::version_table::segment_bytes);
  request.versions = *memory::version_table::create(std::move(*versions));
  const auto fill = [&](const memory::shared_file& each) {
    auto whole = *memory::segment::map(*each.fd().duplicate(), each.size(), memory::access::read_write);
    std::ranges::fill(std::span(whole.data(), looked_at).subspan(memory::page_bytes), std::byte{1});
    clients.push_back(std::move(whole));
  };
  fill(request.index);
  fill(request.versions.file());
  std::vector<slab_request> requests;
  requests.push_back(std::move(request));
  made.submit(std::move(requests));
  BOOST_TEST(next().status.has_value());
  BOOST_TEST(forgotten == std::vector<std::uint32_t>{7});
  BOOST_TEST(reinterpret_cast<const memory::segment_header*>(clients[1].data())->retired.load() == 1U);
  for (const memory::segment& each : clients) {
    const auto behind = std::span(each.data(), looked_at).subspan(memory::page_bytes);
    BOOST_TEST(std::ranges::all_of(behind, [](std::byte b) { return b == std::byte{0}; }));
  }
}

BOOST_AUTO_TEST_CASE(a_slab_that_could_not_be_kept_is_never_pinned) {
  keeps = false;
  BOOST_TEST(!create(slab_of(1, 4 * MiB)).status.has_value());
  keeps = true;
  const auto slab = create(slab_of(2, 4 * MiB));
  wait([&] { return pinned_bytes() == slab.memory.size(); });
}

BOOST_AUTO_TEST_CASE(an_exception_ends_one_request_with_an_answer_and_not_the_thread) {
  throws = true;
  BOOST_TEST(!create(slab_of(1, 4 * MiB)).status.has_value());
  throws = false;
  BOOST_TEST(create(slab_of(2, 4 * MiB)).status.has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::provisioner_test
