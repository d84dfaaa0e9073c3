// One contract for files, a Redis server and plug-ins: what is deleted, what is looked for, and whether a storage
// works.
#include <simdjson.h>

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "services/manager/storages/file_storage.hpp"
#include "services/manager/storages/plugin_storage.hpp"
#include "services/manager/storages/redis_storage.hpp"
#include "tests/support/redis_server.hpp"
#include "tests/unit/services/manager/own_folder.hpp"

namespace cenote::manager::storage_contract_test {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr std::uint64_t block_bytes = 5;

/// A storage, and the client that writes there.
class storage_world {
 public:
  storage_world() = default;
  storage_world(const storage_world&) = delete;
  storage_world& operator=(const storage_world&) = delete;
  virtual ~storage_world() = default;

  virtual storage_backend& storage() = 0;
  virtual void write(const std::string& place) = 0;
  /// From now on it is not there.
  virtual void take_away() = 0;
};

class file_world final : public storage_world {
 public:
  storage_backend& storage() override { return storage_; }
  void write(const std::string& place) override {
    fs::create_directories((root_ / place).parent_path());
    std::ofstream(root_ / place) << "block";
  }
  void take_away() override {
    fs::remove_all(root_);
    std::ofstream(root_) << "a file";
  }

 private:
  test::own_folder folder_;
  fs::path root_ = folder_.path() / "root";
  file_storage storage_{root_.native(), ".probe"};
};

class redis_world final : public storage_world {
 public:
  storage_backend& storage() override { return *storage_; }
  void write(const std::string& place) override { server_.say({"SET", place, "block"}); }
  void take_away() override { server_.kill(); }

 private:
  cenote::test::redis_server server_;
  std::unique_ptr<redis_storage> storage_ = redis_storage::make(server_.url(), {}, 5s).value();
};

/// Objects of a plug-in, and whether it runs.
struct object_store {
  std::set<std::string, std::less<>> objects{};
  bool is_running = true;
};

class object_channel final : public plugin_channel {
 public:
  explicit object_channel(object_store& store) : store_(store) {}

  result<std::string> ask(std::string_view line, plugin_time /*deadline*/) override {
    if (!store_.is_running) return fail(error_code::not_running, "it has ended");
    simdjson::dom::parser parser;
    const simdjson::dom::element question = parser.parse(line.data(), line.size());
    const std::string_view operation = question["op"];
    std::string results = operation == "probe" ? R"({"free_bytes":5,"total_bytes":9})" : "";
    for (const simdjson::dom::element each : question["uris"].get_array()) {
      const std::string_view place = each;
      const auto object = store_.objects.find(place);
      const bool is_there = object != store_.objects.end();
      if (operation == "remove" && is_there) store_.objects.erase(object);
      results += (results.empty() ? "" : ",") + std::string(operation == "remove" || is_there ? "true" : "false");
    }
    return R"({"id":)" + std::to_string(question["id"].get_uint64().value()) + R"(,"results":[)" + results + "]}";
  }

 private:
  object_store& store_;
};

class object_launcher final : public plugin_launcher {
 public:
  explicit object_launcher(object_store& store) : store_(store) {}

  result<std::unique_ptr<plugin_channel>> start() override { return std::make_unique<object_channel>(store_); }
  void cancel() noexcept override {}

 private:
  object_store& store_;
};

class plugin_world final : public storage_world {
 public:
  storage_backend& storage() override { return storage_; }
  void write(const std::string& place) override { store_.objects.insert(place); }
  void take_away() override { store_.is_running = false; }

 private:
  object_store store_;
  plugin_storage storage_{{.name = "p", .type = "dummy"}, std::make_unique<object_launcher>(store_), {}};
};

/// Plays the contract on each kind of backend: a new one is a line here.
template <class Play>
void on_each_storage(Play play) {
  const std::vector<std::pair<const char*, std::unique_ptr<storage_world> (*)()>> worlds{
      {"files", []() -> std::unique_ptr<storage_world> { return std::make_unique<file_world>(); }},
      {"a Redis server", []() -> std::unique_ptr<storage_world> { return std::make_unique<redis_world>(); }},
      {"a plug-in", []() -> std::unique_ptr<storage_world> { return std::make_unique<plugin_world>(); }}};
  for (const auto& [name, make] : worlds) {
    BOOST_TEST_CONTEXT(name) {
      const auto world = make();
      play(*world);
    }
  }
}

removal_item block_at(const std::string& place) {
  return {.place = place, .bytes = block_bytes};
}

/// The presence of each place, asked for as many at once as the storage takes.
std::vector<bool> found_at(storage_backend& storage, const std::vector<std::string>& places) {
  std::vector<bool> found;
  std::vector<removal_item> items;
  for (const std::string& place : places) {
    items.push_back(block_at(place));
    if (items.size() < storage.most_items() && items.size() + found.size() < places.size()) continue;
    for (const auto& each : storage.exist_together(items)) {
      BOOST_TEST_REQUIRE(each.has_value());
      found.push_back(*each);
    }
    items.clear();
  }
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(the_contract_of_storages)

BOOST_AUTO_TEST_CASE(a_block_is_there_from_its_write_to_its_deletion) {
  on_each_storage([](storage_world& world) {
    BOOST_TEST_REQUIRE(world.storage().probe().has_value());
    const std::vector<std::string> places{"i/e1/a", "i/e1/b", "i/e2/a"};
    BOOST_TEST((found_at(world.storage(), places) == std::vector{false, false, false}));
    world.write("i/e1/a");
    world.write("i/e2/a");
    BOOST_TEST((found_at(world.storage(), places) == std::vector{true, false, true}));
    BOOST_TEST(world.storage().remove(block_at("i/e1/a")).has_value());
    BOOST_TEST((found_at(world.storage(), places) == std::vector{false, false, true}));
  });
}

BOOST_AUTO_TEST_CASE(a_deletion_may_be_repeated) {
  on_each_storage([](storage_world& world) {
    BOOST_TEST_REQUIRE(world.storage().probe().has_value());
    world.write("i/e1/a");
    for (int i = 0; i < 2; ++i) BOOST_TEST(world.storage().remove(block_at("i/e1/a")).has_value());
  });
}

BOOST_AUTO_TEST_CASE(a_storage_that_is_away_gives_failures_and_no_absence) {
  on_each_storage([](storage_world& world) {
    BOOST_TEST_REQUIRE(world.storage().probe().has_value());
    world.write("i/e1/a");
    world.take_away();
    const removal_item item = block_at("i/e1/a");
    BOOST_TEST(!world.storage().exist_together({&item, 1}).front().has_value());
    BOOST_TEST(!world.storage().remove(item).has_value());
    BOOST_TEST(!world.storage().probe().has_value());
  });
}

BOOST_AUTO_TEST_CASE(as_many_as_are_taken_at_once_have_an_outcome_each) {
  on_each_storage([](storage_world& world) {
    BOOST_TEST_REQUIRE(world.storage().probe().has_value());
    std::vector<std::string> places;
    for (std::size_t i = 0; i < world.storage().most_items(); ++i) places.push_back("i/e1/" + std::to_string(i));
    world.write(places.back());
    const auto found = found_at(world.storage(), places);
    BOOST_TEST(found.size() == places.size());
    BOOST_TEST((found.back() && std::ranges::count(found, true) == 1));
  });
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::storage_contract_test
