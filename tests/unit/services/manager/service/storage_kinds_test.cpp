// The table of storage types is the one place that lists them: a new type is a row there, not an edit of each reader.
#include <boost/test/unit_test.hpp>

#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "config/manager_section.hpp"
#include "config/schema.hpp"
#include "services/manager/registry/messages.hpp"
#include "services/manager/registry/storage_rules.hpp"
#include "services/manager/service/storage_opening.hpp"
#include "tests/support/product_sources.hpp"
#include "transport/manager/file_uri.hpp"

namespace cenote::manager::storage_kinds_test {

namespace {

using proto::admin::StorageConfig;

/// Files that name a type beside the table, and why.
const std::map<std::string, std::string> files_with_types{
    {"config/manager_section.hpp", "the names of plug-ins, which a test here compares"},
    {"services/manager/registry/storage_listing.hpp", "an example in a comment"},
    {"services/manager/registry/terms.hpp", "the type of terms that name none"},
    {"services/manager/service/bootstrap.cpp", "the storage of an empty registry"},
    {"transport/manager/file_uri.hpp", "the type of a place that names none"},
};

/// A type by its enumerator, its name on the wire, its name for clients or a member of its part.
std::regex names_of_types() {
  std::string parts, texts, wire_names;
  for (const storage_kind& kind : storage_kinds) {
    if (kind.type == storage_type::unspecified) continue;
    parts += (parts.empty() ? "" : "|") + std::string(kind.part);
    wire_names += (wire_names.empty() ? "" : "|") + std::string(kind.wire_name);
    if (kind.form == storage_form::none) continue;
    // "file" is an everyday word: it counts where it is a value of JSON.
    if (kind.client_name != "file") texts += (texts.empty() ? "" : "|") + std::string(kind.client_name);
  }
  return std::regex("storage_type::(?!unspecified\\b)\\w+|\\b(" + wire_names +
                    ")\\b|\\bCPS_(ALWAYS|PREFER)_\\w+|\\b(has_|mutable_)?(" + parts +
                    ")\\(\\)|\\bStorageConfig::k(?!Local\\b)[A-Z]\\w+|\"(" + texts + ")\"|\"type\":\"file\"");
}

std::vector<std::string> files_naming_types(const std::vector<testing::source_file>& files) {
  const std::regex names = names_of_types();
  std::vector<std::string> found;
  for (const auto& [path, text] : files) {
    if (std::regex_search(text, names)) found.push_back(path);
  }
  return found;
}

storage_terms terms_of(const storage_kind& kind) {
  return {.name = "s", .type = kind.type, .root = "/tmp", .server_url = "redis://127.0.0.1:1/0"};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(the_table_of_storage_types)

BOOST_AUTO_TEST_CASE(every_type_is_one_of_the_wire_and_its_part_and_place_are_fields_there) {
  std::set<storage_type> types;
  std::set<std::string_view> schemes;
  for (const storage_kind& kind : storage_kinds) {
    const auto* const row = proto::StorageType_descriptor()->FindValueByNumber(static_cast<int>(kind.type));
    BOOST_REQUIRE(row != nullptr);
    BOOST_TEST(row->name() == kind.wire_name);
    BOOST_TEST(types.insert(kind.type).second, kind.wire_name);
    BOOST_TEST(kind.scheme.empty() == (kind.form == storage_form::none), kind.wire_name);
    if (!kind.scheme.empty()) BOOST_TEST(schemes.insert(kind.scheme).second, kind.wire_name);
    if (kind.type == storage_type::unspecified) continue;
    const auto* const part = StorageConfig::descriptor()->FindFieldByName(std::string(kind.part));
    BOOST_REQUIRE_MESSAGE(part != nullptr && part->message_type() != nullptr, kind.wire_name);
    for (const std::string_view name : kind.place) {
      BOOST_TEST((name.empty() || part->message_type()->FindFieldByName(std::string(name)) != nullptr), name);
    }
  }
  BOOST_TEST(types.size() == static_cast<std::size_t>(proto::StorageType_descriptor()->value_count()));
}

BOOST_AUTO_TEST_CASE(every_strategy_of_the_wire_belongs_to_a_type) {
  std::size_t strategies = 1;
  for (const storage_kind& kind : storage_kinds) {
    if (kind.always_choice == 0) continue;
    strategies += 2;
    const auto& names = *proto::admin::CachePreferStrategy_descriptor();
    const auto* const alone = names.FindValueByNumber(kind.always_choice);
    const auto* const first = names.FindValueByNumber(kind.always_choice + 1);
    BOOST_REQUIRE((alone != nullptr && first != nullptr));
    BOOST_TEST(alone->name().substr(10) == first->name().substr(10));
    BOOST_TEST((alone->name().starts_with("CPS_ALWAYS") && first->name().starts_with("CPS_PREFER")));
  }
  BOOST_TEST(strategies == static_cast<std::size_t>(proto::admin::CachePreferStrategy_descriptor()->value_count()));
}

BOOST_AUTO_TEST_CASE(every_type_with_blocks_has_a_backend_and_addresses) {
  for (const storage_kind& kind : storage_kinds) {
    const opening_options options{.name = "m", .plugins = {{kind.type, "true"}}};
    const auto opened = open_storage(terms_of(kind), options, std::make_shared<plugin_counters>());
    BOOST_TEST(opened.has_value() == (kind.form != storage_form::none), kind.wire_name);
    BOOST_TEST(uri_writer::serves(kind.type) == (kind.form != storage_form::none), kind.wire_name);
  }
}

BOOST_AUTO_TEST_CASE(the_configuration_has_the_names_of_all_plug_ins) {
  const std::string_view about = config::find_key("manager.plugins")->about;
  std::size_t plugins = 0;
  for (const storage_kind& kind : storage_kinds) {
    const bool is_plugin = kind.form == storage_form::plugin;
    plugins += is_plugin ? 1 : 0;
    BOOST_TEST((std::ranges::find(config::plugin_names, kind.client_name) != config::plugin_names.end()) == is_plugin,
               kind.client_name);
    if (is_plugin) BOOST_TEST(about.contains("`" + std::string(kind.client_name) + "`"), kind.client_name);
    BOOST_TEST((find_kind_of_plugin(kind.client_name) == &kind) == is_plugin, kind.wire_name);
  }
  BOOST_TEST(plugins == config::plugin_names.size());
}

/// A file that is found here asks the row of the type, or adds a column for what it needs.
BOOST_AUTO_TEST_CASE(no_file_but_the_table_names_a_type, *boost::unit_test::enable_if<testing::reads_sources>()) {
  auto files = testing::product_sources({"commands/services/admin", "config", "services/manager", "transport/manager"});
  std::erase_if(files, [](const auto& file) { return file.path == "transport/manager/storage_type.hpp"; });
  const auto found = files_naming_types(files);
  for (const std::string& path : found) BOOST_TEST(files_with_types.contains(path), path << " names types of storages");
  for (const auto& [path, reason] : files_with_types) {
    BOOST_TEST((std::ranges::find(found, path) != found.end()), path << " names none any more");
  }
}

BOOST_AUTO_TEST_CASE(a_file_that_names_a_type_is_found_in_each_way_of_naming_it) {
  for (const char* text : {"case storage_type::nfs:", "if (config.has_threefs())", "config.redis().url()",
                           "\"mooncake\"", "StorageConfig::kNfs", "proto::ST_3FS", "CPS_PREFER_NFS"}) {
    BOOST_TEST(files_naming_types({{"a.cpp", text}}).size() == 1U, text);
  }
  for (const char* text :
       {"storage_type::unspecified", "StorageConfig::kLocal", "redis::parse()", "storage_type type"}) {
    BOOST_TEST(files_naming_types({{"a.cpp", text}}).empty(), text);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::storage_kinds_test
