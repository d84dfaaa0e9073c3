#include "config/schema.hpp"

#include <fstream>
#include <iterator>
#include <set>

#include "config/document.hpp"
#include "config/nearest.hpp"
#include "config/value.hpp"
#include "tests/support/folders.hpp"
#include "tests/unit/config/config_support.hpp"

using namespace cenote;
using namespace cenote::config;
using namespace cenote::test;

namespace {

/// A value that the key accepts and that is not its default, as typed after --set; empty if there is no
/// other.
std::string other_value(const key_schema& schema) {
  switch (schema.type) {
    case value_type::string:
      if (schema.name.ends_with(".listen") || schema.name.ends_with(".grpc")) return "off";
      return schema.name == "log.level" ? "debug" : "other";
    case value_type::integer:
      if (schema.name == "node.threads") return "2";
      return std::string(schema.maximum == schema.fallback ? schema.minimum : schema.maximum);
    case value_type::boolean: return schema.fallback == "true" ? "false" : "true";
    case value_type::bytes: return "2MiB";
    case value_type::duration: return "7s";
    case value_type::ratio: return schema.name.ends_with(".high_water") ? "0.99" : "0.4";
    case value_type::choice: {
      const auto choices = choices_of(schema);
      if (choices.size() < 2) return "";
      return choices.back() == schema.fallback ? choices.front() : choices.back();
    }
    case value_type::string_list:
      if (schema.name == "cluster.seeds") return "[\"10.0.0.2:7000\"]";
      return schema.name == "groups.<name>.keep" ? "[0123456789abcdef]" : "[/x]";
    case value_type::integer_list: return "[7]";
    case value_type::ratio_map: return "{gpu = 0.5}";
  }
  return "";
}

std::string with_group(std::string_view name) {
  std::string key(name);
  if (const auto at = key.find("<name>"); at != std::string::npos) key.replace(at, 6, "a");
  return key;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(schema)

BOOST_AUTO_TEST_CASE(every_key_is_unique_and_has_a_line_of_text) {
  std::set<std::string_view> names;
  for (const auto& key : all_keys()) {
    BOOST_TEST(names.insert(key.name).second, key.name);
    BOOST_TEST(!key.about.empty(), key.name);
    BOOST_TEST(!contains(key.about, "|"), key.name << ": a bar would break the documentation's table");
    BOOST_TEST((key.type == value_type::choice) == !choices_of(key).empty(), key.name);
  }
}

BOOST_AUTO_TEST_CASE(every_default_is_accepted_by_its_own_key) {
  for (const auto& key : all_keys()) {
    const auto text = to_toml(default_of(key));
    BOOST_TEST_CONTEXT(key.name << " = " << text) {
      const auto loaded = load_sets({with_group(key.name) + "=" + text});
      BOOST_TEST(loaded.has_value());
    }
  }
}

BOOST_AUTO_TEST_CASE(every_key_can_be_set_and_shows_up) {
  for (const auto& key : all_keys()) {
    const bool is_endpoint = key.name == "publish.endpoint" || key.name == "publish.replay";
    const std::string text = key.name == "gpu.devices"     ? "[\"sim:0\"]"
                             : is_endpoint                 ? "tcp://127.0.0.1:1"
                             : key.name == "trace.otlp"    ? "http://127.0.0.1:4318"
                             : key.name == "optimize.mode" ? "off"
                                                           : other_value(key);
    if (text.empty()) continue;
    const auto name = with_group(key.name);
    std::vector<std::string> sets{name + "=" + text};
    if (key.name == "nvme.paths") sets.emplace_back("nvme.capacity=1GiB");
    if (key.name == "gpu.capacity") sets.emplace_back("gpu.devices=[\"sim:0\"]");
    if (key.name == "cluster.seeds") sets.emplace_back("cluster.name=a");
    if (key.name.starts_with("groups.<name>.quota_m")) {
      sets.push_back(with_group("groups.<name>.quota") + "=" + text);  // between the two
      const bool is_least = key.name == "groups.<name>.quota_min";
      sets.push_back(with_group(is_least ? "groups.<name>.quota_max" : "groups.<name>.quota_min") + "=" + text);
    }
    if (key.name == "publish.replay") sets.emplace_back("publish.endpoint=tcp://127.0.0.1:2");
    if (is_endpoint) sets.emplace_back("publish.name=a");
    if (key.name == "trace.ca") sets.emplace_back("trace.otlp=https://127.0.0.1:4318/v1/traces");
    const auto config = good(load_sets(sets));
    BOOST_TEST((config.settings.at(name).value != default_of(key)), name);
    BOOST_TEST((changed_unreloadable(default_config(), config).empty() == key.reloadable), name);
  }
}

BOOST_AUTO_TEST_CASE(no_two_keys_are_bound_to_one_member) {
  std::set<decltype(key_schema::take)> members;
  for (const auto& key : all_keys()) BOOST_TEST(members.insert(key.take).second, key.name);
}

BOOST_AUTO_TEST_CASE(each_word_of_a_choice_is_its_enumerator) {
  const auto check = [](const std::string& key, auto any, const auto& member_of) {
    for (const auto each : enumerators_of(any)) {
      const auto config = good(load_sets({key + "=" + std::string(name_of(each))}));
      BOOST_TEST((member_of(config) == each), key << "=" << name_of(each));
    }
  };
  check("nvme.ingest", ingest{}, [](const node_config& of) { return of.nvme.ingest; });
  check("nvme.admission", admission{}, [](const node_config& of) { return of.nvme.admission; });
  check("nvme.engine", engine_kind{}, [](const node_config& of) { return of.nvme.engine; });
  check("gpu.ingest", ingest{}, [](const node_config& of) { return of.gpu.ingest; });
  check("gpu.backend", gpu_backend{}, [](const node_config& of) { return of.gpu.backend; });
  check("dram.huge_pages", huge_pages{}, [](const node_config& of) { return of.dram.huge_pages; });
  check("dram.integrity", integrity{}, [](const node_config& of) { return of.dram.integrity; });
  check("log.format", log_format{}, [](const node_config& of) { return of.log.format; });
  check("publishers.a.engine", event_source{}, [](const node_config& of) { return of.publishers.at("a").engine; });
  check("publishers.a.clear", cleared_media{}, [](const node_config& of) { return of.publishers.at("a").clear; });
  check("events.engine", event_source{}, [](const node_config& of) { return of.events.engine; });
  check("index.backend", index_backend{}, [](const node_config& of) { return of.index.backend; });
  check("index.key", index_key{}, [](const node_config& of) { return of.index.key; });
  check("groups.a.priority", priority{}, [](const node_config& of) { return of.groups.at("a").priority; });
  for (const char* const word : {"best_effort", "wait_complete", "timeout"}) {
    const auto config = good(load_sets({std::string("prefetch.policy=") + word}));
    BOOST_TEST(name_of(config.prefetch.policy) == word);
  }
  refused(load_sets({"prefetch.policy=node_default"}), "one of best_effort, wait_complete, timeout");
}

BOOST_AUTO_TEST_CASE(keys_with_a_chosen_name_are_found_under_any_name) {
  const auto* found = find_key("groups.a.b.quota");
  BOOST_REQUIRE(found != nullptr);
  BOOST_TEST(found->name == "groups.<name>.quota");
  BOOST_TEST(chosen_name(*found, "groups.a.b.quota") == "a.b");
  BOOST_TEST(find_key("groups..quota") == nullptr);
  BOOST_TEST(find_key("groups.quota") == nullptr);
  BOOST_TEST(find_key("dram") == nullptr);
}

BOOST_AUTO_TEST_CASE(sections_are_known) {
  BOOST_TEST(is_section("dram"));
  BOOST_TEST(is_section("groups"));
  BOOST_TEST(is_section("groups.a"));
  BOOST_TEST(!is_section("dra"));
  BOOST_TEST(!is_section("dram.capacity"));
}

BOOST_AUTO_TEST_CASE(a_swap_of_neighbours_is_one_edit) {
  BOOST_TEST(edit_distance("capactiy", "capacity") == 1U);
  BOOST_TEST(edit_distance("", "abc") == 3U);
  BOOST_TEST(edit_distance("kitten", "sitting") == 3U);
  BOOST_TEST(edit_distance("same", "same") == 0U);
}

BOOST_AUTO_TEST_CASE(nothing_near_gives_no_suggestion) {
  const std::vector<std::string> names{"alpha", "beta"};
  BOOST_TEST(nearest("alpah", names).value_or("") == "alpha");
  BOOST_TEST(!nearest("omicron", names).has_value());
}

BOOST_AUTO_TEST_CASE(the_documentation_is_written_from_the_schema) {
  std::ifstream file(cenote::testing::source_folder() / "docs/configuration.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (std::getenv("CENOTE_TEST_WRITE_DOCS") != nullptr) {
    std::ofstream(cenote::testing::source_folder() / "docs/configuration.md") << document_schema();
    return;
  }
  BOOST_TEST((page == document_schema()),
             "docs/configuration.md is out of date; run this test with CENOTE_TEST_WRITE_DOCS=1");
}

BOOST_AUTO_TEST_CASE(the_documentation_names_every_key) {
  const auto page = document_schema();
  for (const auto& key : all_keys()) BOOST_TEST(contains(page, "| `" + std::string(key.name) + "` |"), key.name);
}

BOOST_AUTO_TEST_SUITE_END()
