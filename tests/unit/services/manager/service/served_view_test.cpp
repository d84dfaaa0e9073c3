// Views of readers, from many threads.
#include "services/manager/service/served_view.hpp"

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace cenote::manager {

namespace {

constexpr int thread_count = 4;

template <class Work>
void run_together(Work&& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

std::shared_ptr<storage_signal> signal_of(storage_condition condition) {
  return std::make_shared<storage_signal>(condition);
}

served_storage storage_of(storage_condition condition, bool is_enabled) {
  return {.terms =
              std::make_shared<const storage_terms>(storage_terms{.name = "s", .root = "/s", .is_enabled = is_enabled}),
          .signal = signal_of(condition)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(views_of_readers)

BOOST_AUTO_TEST_CASE(a_storage_is_read_when_it_is_enabled_and_works) {
  using enum storage_condition;
  BOOST_TEST(storage_of(healthy, true).is_readable());
  BOOST_TEST(storage_of(full, true).is_readable());
  BOOST_TEST(!storage_of(unhealthy, true).is_readable());
  BOOST_TEST(!storage_of(unprobed, true).is_readable());
  BOOST_TEST(!storage_of(healthy, false).is_readable());
}

BOOST_AUTO_TEST_CASE(texts_of_a_storage_are_made_once_for_all_readers) {
  auto terms = std::make_shared<instance_terms>(instance_terms{.id = "i", .specs = {{.name = "a", .bytes = 1}}});
  auto storages = std::make_shared<storage_table>();
  (*storages)[7] = std::make_shared<const served_storage>(storage_of(storage_condition::healthy, true));
  const served_instance instance(terms, std::make_shared<const group_terms>(),
                                 std::make_shared<const instance_index>(1), storages);
  std::vector<const storage_texts*> texts(thread_count);
  run_together([&](int i) { texts[static_cast<std::size_t>(i)] = &instance.texts(7); });
  BOOST_TEST(std::set<const storage_texts*>(texts.begin(), texts.end()).size() == 1U);
  BOOST_TEST((texts.front()->type() == storage_type::nfs));
  std::string uri;
  (*texts.front())[0].uri.append({.extent = 1}, uri);
  BOOST_TEST(uri.starts_with("file://s/s/i/"), uri);
}

BOOST_AUTO_TEST_CASE(an_instance_is_another_one_when_any_of_its_parts_is) {
  const auto terms = std::make_shared<const instance_terms>();
  const auto group = std::make_shared<const group_terms>();
  const auto index = std::make_shared<const instance_index>(1);
  const auto storages = std::make_shared<const storage_table>();
  const served_instance instance(terms, group, index, storages);
  BOOST_TEST(instance.is_of(terms.get(), group.get(), index.get(), storages.get()));
  BOOST_TEST(!instance.is_of(nullptr, group.get(), index.get(), storages.get()));
  BOOST_TEST(!instance.is_of(terms.get(), nullptr, index.get(), storages.get()));
  BOOST_TEST(!instance.is_of(terms.get(), group.get(), nullptr, storages.get()));
  BOOST_TEST(!instance.is_of(terms.get(), group.get(), index.get(), nullptr));
}

BOOST_AUTO_TEST_CASE(a_reader_has_an_empty_view_first_and_never_an_older_one_again) {
  view_board board;
  BOOST_TEST_REQUIRE(board.take() != nullptr);
  BOOST_TEST((!board.take()->is_ready && board.take()->epoch == 0U));
  constexpr std::uint32_t epochs = 200;
  std::atomic<bool> is_done{false};
  std::atomic<int> faults{0};
  std::thread writer([&] {
    for (std::uint32_t epoch = 1; epoch <= epochs; ++epoch) {
      auto view = std::make_shared<served_view>();
      view->epoch = epoch;
      board.show(std::move(view));
    }
    is_done.store(true);
  });
  run_together([&](int) {
    view_reader reader(board);
    std::uint32_t last = 0;
    while (!is_done.load()) {
      const std::uint32_t epoch = reader.view()->epoch;
      if (epoch < last) faults.fetch_add(1);
      last = epoch;
    }
    if (reader.view()->epoch != epochs) faults.fetch_add(1);
  });
  writer.join();
  BOOST_TEST(faults.load() == 0);
}

BOOST_AUTO_TEST_CASE(a_reader_keeps_its_view_until_there_is_another) {
  view_board board;
  view_reader reader(board);
  const served_view* const view = reader.view().get();
  BOOST_TEST(reader.view().get() == view);
  board.show(std::make_shared<const served_view>());
  BOOST_TEST(reader.view().get() != view);
}

BOOST_AUTO_TEST_CASE(uses_come_in_their_order) {
  use_list uses;
  for (std::uint64_t i = 0; i < 5; ++i) uses.add(i, {static_cast<std::uint32_t>(i), 7});
  const auto all = uses.take();
  BOOST_REQUIRE(all.size() == 5U);
  for (std::uint64_t i = 0; i < 5; ++i) {
    BOOST_TEST(
        (all[i]->instance == i && all[i]->records == std::vector<std::uint32_t>{static_cast<std::uint32_t>(i), 7}));
  }
  BOOST_TEST(uses.take().empty());
}

BOOST_AUTO_TEST_CASE(uses_beyond_the_bound_are_dropped_until_some_are_taken) {
  use_list uses;
  const std::vector<std::uint32_t> records(use_list::most_waiting / 4);
  for (std::size_t i = 0; i < 10; ++i) uses.add(i, records);
  const auto all = uses.take();
  BOOST_TEST(all.size() == 4U);
  BOOST_TEST(all.front()->instance == 0U);
  uses.add(1, records);
  BOOST_TEST(uses.take().size() == 1U);
}

BOOST_AUTO_TEST_CASE(uses_of_many_threads_are_each_taken_once) {
  use_list uses;
  constexpr std::uint64_t uses_each = 500;
  std::multiset<std::uint64_t> taken;
  std::atomic<int> at_work{thread_count};
  std::thread taker([&] {
    for (bool is_last = false; !is_last;) {
      is_last = at_work.load() == 0;
      for (const auto& used : uses.take()) taken.insert(used->instance);
    }
  });
  run_together([&](int i) {
    for (std::uint64_t count = 0; count < uses_each; ++count)
      uses.add(static_cast<std::uint64_t>(i) * uses_each + count, {1});
    at_work.fetch_sub(1);
  });
  taker.join();
  BOOST_TEST(taken.size() == thread_count * uses_each);
  BOOST_TEST(std::set<std::uint64_t>(taken.begin(), taken.end()).size() == taken.size());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
