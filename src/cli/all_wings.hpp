#pragma once

namespace emm::cli {

/// For a program that lacks wings: continues as the program that has all of them, with the same
/// words, where tools/emmctl says how to come to it (EMM_REST, a program to start). It returns
/// where nothing is lacking, and where nobody says how. Call it before anything is read or printed.
///
/// So `emmctl_core`, which tools/emmctl builds first, never has to say what it was built without.
void continue_with_all_wings();

}  // namespace emm::cli
