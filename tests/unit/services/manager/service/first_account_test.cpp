// The account of an empty registry, and the file of its password.
#include "services/manager/service/first_account.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/unit/services/manager/service/account_world.hpp"

namespace cenote::manager {

namespace {

namespace fs = std::filesystem;

class state_folder {
 public:
  state_folder() {
    std::string pattern = (fs::temp_directory_path() / "cenote-manager-XXXXXX").string();
    BOOST_TEST_REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  state_folder(const state_folder&) = delete;
  state_folder& operator=(const state_folder&) = delete;
  ~state_folder() { fs::remove_all(path_); }

  [[nodiscard]] std::string path() const { return path_; }
  [[nodiscard]] std::string file() const { return path_ + "/" + password_file; }
  /// Without the newline.
  [[nodiscard]] std::string password() const {
    std::ifstream stream(file());
    std::string line;
    std::getline(stream, line);
    return line;
  }

 private:
  std::string path_;
};

rpc_outcome<registry_change> first_change(const state_folder& folder, const manager_registry& settings,
                                          registry_edit begin = {}) {
  return with_first_account(std::move(begin), folder.path())({.settings = settings});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(first_accounts)

BOOST_AUTO_TEST_CASE(an_empty_registry_gets_an_admin_whose_password_its_owner_alone_reads) {
  const state_folder folder;
  const auto change = first_change(folder, {});
  BOOST_TEST_REQUIRE(change.has_value());
  BOOST_TEST(!change->rows.empty());
  BOOST_TEST(folder.password().size() == 32U);
  const auto account = change->next.check("admin", folder.password());
  BOOST_TEST_REQUIRE(account != nullptr);
  BOOST_TEST((account->role == account_role::admin));
  BOOST_TEST(account->groups.empty());
  struct stat facts {};
  BOOST_TEST_REQUIRE(::stat(folder.file().c_str(), &facts) == 0);
  BOOST_TEST((facts.st_mode & 07777U) == 0600U);
}

BOOST_AUTO_TEST_CASE(the_same_change_again_keeps_the_password) {
  const state_folder folder;
  BOOST_TEST(first_change(folder, {}).has_value());
  const std::string password = folder.password();
  const auto again = first_change(folder, {});
  BOOST_TEST_REQUIRE(again.has_value());
  BOOST_TEST(folder.password() == password);
  BOOST_TEST(again->next.check("admin", password) != nullptr);
}

BOOST_AUTO_TEST_CASE(a_registry_with_accounts_gets_no_other) {
  const state_folder folder;
  const auto settings = test::with_account({}, "root", "p", account_role::admin);
  const auto change = first_change(folder, settings);
  BOOST_TEST_REQUIRE(change.has_value());
  BOOST_TEST(change->rows.empty());
  BOOST_TEST(change->next.accounts().size() == 1U);
  BOOST_TEST(!fs::exists(folder.file()));
}

BOOST_AUTO_TEST_CASE(what_the_registry_begins_with_and_the_account_are_one_change) {
  const state_folder folder;
  const auto change = first_change(folder, {}, [](const change_basis& basis) {
    proto::admin::StorageConfig storage;
    storage.set_global_unique_name("s1");
    storage.mutable_nfs()->set_root_path("/mnt/kv");
    storage.mutable_nfs()->set_key_count_per_file(1);
    return basis.settings.add_storage(storage);
  });
  BOOST_TEST_REQUIRE(change.has_value());
  BOOST_TEST(change->next.storages().size() == 1U);
  BOOST_TEST(change->next.accounts().size() == 1U);
  BOOST_TEST(change->rows.size() > 1U);
}

BOOST_AUTO_TEST_CASE(the_account_is_made_where_the_rest_is_refused) {
  const state_folder folder;
  const auto change = first_change(folder, {}, [](const change_basis&) -> rpc_outcome<registry_change> {
    return refuse(answer_code::invalid_argument, "no snapshot");
  });
  BOOST_TEST_REQUIRE(change.has_value());
  BOOST_TEST(change->next.accounts().size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_file_that_others_may_read_is_no_password) {
  const state_folder folder;
  std::ofstream(folder.file()) << "guessed\n";
  BOOST_TEST_REQUIRE(::chmod(folder.file().c_str(), 0644) == 0);
  const auto change = first_change(folder, {});
  BOOST_TEST_REQUIRE(!change.has_value());
  BOOST_TEST((change.error().code == answer_code::io_error));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
