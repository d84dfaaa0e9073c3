// Files below a folder: what is deleted, and what no name leads to.
#include <fcntl.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/unique_fd.hpp"
#include "services/manager/storages/file_storage.hpp"
#include "tests/unit/services/manager/own_folder.hpp"

namespace cenote::manager {

namespace fs = std::filesystem;

namespace {

/// A storage in `root`, beside a file that is not its own.
struct file_world {
  test::own_folder folder;
  fs::path root = folder.path() / "root";
  fs::path foreign = folder.path() / "foreign";
  file_storage storage{root.native(), ".probe"};

  file_world() {
    fs::create_directories(root);
    write(foreign, "foreign");
  }
  static void write(const fs::path& path, const std::string& content) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  static std::string content_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  [[nodiscard]] result<> remove(const std::string& place) { return storage.remove({.place = place}); }
};

bool has_holes(const fs::path& path) {
  const unique_fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return ::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1) == 0;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(files_below_a_folder, file_world)

BOOST_AUTO_TEST_CASE(a_block_is_there_where_its_file_has_its_bytes) {
  constexpr std::uint64_t bytes = 1U << 16U;
  write(root / "i/e1/tp0", std::string(2 * bytes, 'x'));
  const auto exists = [&](const std::string& place, std::uint64_t offset) {
    const removal_item item{.place = place, .offset = offset, .bytes = bytes, .scope = removal_scope::part};
    return storage.exist_together({&item, 1}).front();
  };
  BOOST_TEST((exists("i/e1/tp0", 0).value() && exists("i/e1/tp0", bytes).value()));
  BOOST_TEST(!exists("i/e1/tp0", 2 * bytes).value());
  BOOST_TEST(!exists("i/e1", 0).value());
  fs::create_symlink(foreign, root / "i/e1/link");
  BOOST_TEST(!exists("i/e1/link", 0).has_value());
  BOOST_TEST(!exists("../foreign", 0).has_value());
  BOOST_TEST(storage.remove({.place = "i/e1/tp0", .bytes = bytes, .scope = removal_scope::part}).has_value());
  BOOST_TEST(exists("i/e1/tp0", 0).value() == !has_holes(root / "i/e1/tp0"));
  BOOST_TEST(exists("i/e1/tp0", bytes).value());
}

BOOST_AUTO_TEST_CASE(a_file_goes_and_with_the_last_one_its_folders) {
  write(root / "i/e1/tp0", "x");
  write(root / "i/e1/tp0.1", "x");
  write(root / "i/e2/tp0", "x");
  BOOST_TEST(remove("i/e1/tp0").has_value());
  BOOST_TEST(!fs::exists(root / "i/e1/tp0"));
  BOOST_TEST(fs::exists(root / "i/e1/tp0.1"));
  BOOST_TEST(remove("i/e1/tp0.1").has_value());
  BOOST_TEST(!fs::exists(root / "i/e1"));
  BOOST_TEST(fs::exists(root / "i/e2/tp0"));
  BOOST_TEST(remove("i/e2/tp0").has_value());
  BOOST_TEST(!fs::exists(root / "i"));
  BOOST_TEST(fs::exists(root));
}

BOOST_AUTO_TEST_CASE(a_part_leaves_the_bytes_beside_it_and_the_length) {
  constexpr std::size_t block = 8'192;
  const std::string others(block, 'a');
  write(root / "i/e/tp0", others + std::string(block, 'b') + others);
  const bool leaves_holes = has_holes(foreign);
  BOOST_TEST(
      storage.remove({.place = "i/e/tp0", .offset = block, .bytes = block, .scope = removal_scope::part}).has_value());
  const std::string content = content_of(root / "i/e/tp0");
  BOOST_TEST(content.size() == 3 * block);
  BOOST_TEST((content.substr(0, block) == others && content.substr(2 * block) == others));
  BOOST_TEST((content.substr(block, block) == std::string(block, leaves_holes ? '\0' : 'b')));
}

BOOST_AUTO_TEST_CASE(what_is_not_there_counts_as_deleted) {
  BOOST_TEST(remove("i/e/tp0").has_value());
  BOOST_TEST(storage.remove({.place = "i/e/tp0", .bytes = 1, .scope = removal_scope::part}).has_value());
  write(root / "i", "a file where a folder should be");
  BOOST_TEST(remove("i/e/tp0").has_value());
  BOOST_TEST(fs::exists(root / "i"));
  write(root / "j/other", "x");
  BOOST_TEST(remove("j/tp0").has_value());
  BOOST_TEST(fs::exists(root / "j/other"));
}

BOOST_AUTO_TEST_CASE(a_symbolic_link_on_the_way_is_not_followed) {
  write(folder.path() / "outside/tp0", "outside");
  fs::create_directory_symlink(folder.path() / "outside", root / "i");
  (void)remove("i/tp0");
  BOOST_TEST(content_of(folder.path() / "outside/tp0") == "outside");
  fs::create_directories(root / "j");
  fs::create_symlink(foreign, root / "j/tp0");
  BOOST_TEST(!storage.remove({.place = "j/tp0", .bytes = 7, .scope = removal_scope::part}).has_value());
  BOOST_TEST(content_of(foreign) == "foreign");
  BOOST_TEST(remove("j/tp0").has_value());  // the link itself
  BOOST_TEST(content_of(foreign) == "foreign");
  BOOST_TEST(!fs::is_symlink(root / "j/tp0"));
}

BOOST_AUTO_TEST_CASE(a_path_that_leads_out_is_refused) {
  write(root / "i/tp0", "x");
  for (const std::string& place :
       {std::string("../foreign"), std::string("i/../../foreign"), std::string("/" + foreign.native()),
        std::string(".."), std::string("."), std::string(), std::string("i//tp0"), std::string("./i/tp0"),
        std::string("i/tp0\0x", 7)}) {
    const auto removed = remove(place);
    BOOST_TEST_REQUIRE(!removed.has_value(), place);
    BOOST_TEST((removed.error().code() == error_code::invalid_argument), place);
  }
  BOOST_TEST(content_of(foreign) == "foreign");
  BOOST_TEST(content_of(root / "i/tp0") == "x");
}

BOOST_AUTO_TEST_CASE(a_folder_in_the_place_of_a_file_is_an_error) {
  write(root / "i/e/tp0/deep", "x");
  BOOST_TEST(!remove("i/e/tp0").has_value());
  BOOST_TEST(!storage.remove({.place = "i/e/tp0", .bytes = 1, .scope = removal_scope::part}).has_value());
  BOOST_TEST(fs::exists(root / "i/e/tp0/deep"));
}

BOOST_AUTO_TEST_CASE(a_folder_goes_with_its_files_piece_by_piece_and_those_beside_it_stay) {
  for (int i = 0; i < 1'200; ++i) write(root / "i/e1" / ("tp0." + std::to_string(i)), "x");
  write(root / "i/e12/tp0", "x");
  write(root / "i/e/tp0", "x");
  std::size_t calls = 1;
  for (; storage.remove_some("i/e1").value_or(false); ++calls) BOOST_TEST_REQUIRE(fs::exists(root / "i/e1"));
  BOOST_TEST(calls == 3U);
  BOOST_TEST(!fs::exists(root / "i/e1"));
  BOOST_TEST((fs::exists(root / "i/e12/tp0") && fs::exists(root / "i/e/tp0")));
  for (const std::string place : {"i/e12", "i/e"}) BOOST_TEST(!storage.remove_some(place).value_or(true));
  BOOST_TEST((!fs::exists(root / "i") && fs::exists(root)));
}

BOOST_AUTO_TEST_CASE(a_folder_that_is_not_there_counts_as_deleted) {
  BOOST_TEST(!storage.remove_some("i/e").value_or(true));
  write(root / "i/e", "a file where a folder should be");
  BOOST_TEST(!storage.remove_some("i/e").value_or(true));
  BOOST_TEST(fs::exists(root / "i/e"));
  fs::remove_all(root);
  BOOST_TEST(!storage.remove_some("i/e").has_value());  // the root may be a mount that is away
}

BOOST_AUTO_TEST_CASE(folders_and_targets_of_links_in_a_folder_stay) {
  write(root / "i/e/tp0", "x");
  write(root / "i/e/deep/tp0", "x");
  fs::create_symlink(foreign, root / "i/e/link");
  fs::create_directory_symlink(folder.path(), root / "i/f");
  BOOST_TEST(!storage.remove_some("i/e").value_or(true));
  BOOST_TEST((!fs::exists(root / "i/e/tp0") && !fs::is_symlink(root / "i/e/link")));
  BOOST_TEST(fs::exists(root / "i/e/deep/tp0"));
  BOOST_TEST(!storage.remove_some("i/f").value_or(true));
  BOOST_TEST(content_of(foreign) == "foreign");
  for (const std::string place : {"..", "../root", ""}) BOOST_TEST(!storage.remove_some(place).has_value());
}

BOOST_AUTO_TEST_CASE(a_probe_makes_the_root_and_leaves_nothing_in_it) {
  fs::remove_all(root);
  const auto room = storage.probe();
  BOOST_TEST_REQUIRE(room.has_value());
  BOOST_TEST((room->total_bytes > 0 && room->free_bytes <= room->total_bytes));
  BOOST_TEST(fs::is_empty(root));
  BOOST_TEST(storage.probe().has_value());
}

BOOST_AUTO_TEST_CASE(a_probe_does_not_write_through_a_link_and_fails_without_a_root) {
  fs::create_symlink(foreign, root / ".probe");
  BOOST_TEST(!storage.probe().has_value());
  BOOST_TEST(content_of(foreign) == "foreign");
  file_storage hopeless(foreign.native() + "/below", ".probe");
  BOOST_TEST(!hopeless.probe().has_value());
  BOOST_TEST(!hopeless.remove({.place = "i/tp0"}).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
